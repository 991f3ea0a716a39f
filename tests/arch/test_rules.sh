# scripts/rules.sh finds writable data in objects, and passes constants.
source tests/check.sh
mkdir -p "$work"/{scripts,src,cuda,tests}
cp scripts/rules.sh "$work/scripts"
touch "$work/Makefile"
judge() { # TEXT: compiles it the two ways that place data differently
    printf '%b' "$1" >"$work/one.c"
    rm -f "$work/one.a"
    ${CC:-gcc} -O1 -fno-common "$2" -w -c "$work/one.c" -o "$work/one.o" && ar rcs "$work/one.a" "$work/one.o"
    run "$work/scripts/rules.sh" "$work/one.a"
}
for flag in -fPIE -fdata-sections; do
    judge 'const int n[2] = {1, 2};\nconst char *const s[] = {"a"};\nint f(int x) { return x + n[0]; }\n' $flag
    check "constants pass ($flag)" ended 0
    judge 'int counter;\n' $flag
    check "a zeroed global ($flag)" says 'one.o: counter in .bss'
    judge 'int counter = 3;\n' $flag
    check "a global with a value ($flag)" says 'one.o: counter in .data'
    judge 'int f(void) { static int calls; return ++calls; }\n' $flag
    check "a static of a function ($flag)" says 'calls'
    judge 'static _Thread_local int last;\nint *f(void) { return &last; }\n' $flag
    check "thread-local state ($flag)" says 'last in .tbss'
    judge 'const char *name = "a";\n' $flag
    check "a pointer that can be changed ($flag)" says 'one.o: name in .data'
    check "and it fails" ended 1
done
judge 'int f(void) { return 1; }\n' -fPIE
check "the library is clean again" ended 0
printf 'void f(char *a) { strcpy(a, "b"); }\n' >"$work/src/a.c"
run "$work/scripts/rules.sh" "$work/one.a"
check "an unbounded copy" says 'src/a.c:1:.*strcpy'
finish
