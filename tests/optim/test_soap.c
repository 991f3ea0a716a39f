/* test: timeout=120 */
/* SOAP. The first step only makes the bases. */
#define RULE "soap"
#define KIND MT_SOAP
#define OPTIONS "soap.beta1=0.95 soap.beta2=0.9 soap.eps=1e-8 soap.frequency=2 "
#define TRAINS ""
#define PREPARES 1
#include "factored_check.h"

int main(void)
{
    return factored_tests();
}
