# test: timeout=240
# moetitan ckpt export and import: there and back to the bit, every family, what is refused, what a damaged folder says.
source tests/check.sh
source tests/ckpt/small.sh
golden=tests/golden/huggingface
copy_of() { rm -rf "$work/bad" && cp -r "$golden/$1" "$work/bad"; }
config() { sed -i -E "$1" "$work/bad/config.json"; }
import_bad() { rm -rf "$work/out-bad" && run "$MT_BIN" ckpt import "$work/bad" "$work/out-bad"; }
refused() { # WHAT CODE PATTERN
    import_bad
    check "$1: exit code" ended "$2"
    check "$1: said" says "$3"
    check "$1: nothing else is said" test "$(wc -l <"$work/out")" = 1
    check "$1: nothing is left" test ! -e "$work/out-bad"
}
options_of() { sed 's/ *#.*//' "$1/config.yaml"; }

# There and back
for family in qwen3_moe mixtral glm4_moe qwen3 qwen2 llama deepseek_v3 deepseek_v3_plain qwen3_window; do
    type=${family%_plain} type=${type%_window}
    run "$MT_BIN" ckpt import "$golden/$family" "$work/$family"
    check "$family: import" ended 0
    check "$family: named" says "^family: $type\$"
    run "$MT_BIN" ckpt verify "$work/$family"
    check "$family: a checkpoint" says 'valid, step 0$'
    run "$MT_BIN" ckpt export "$work/$family" "$work/$family.hf" --dtype f32 --shard-bytes 9000 --tokenizer README.md
    check "$family: export" ended 0
    check "$family: several files" says "^$work/$family.hf: [0-9]+ files of weights, f32\$"
    check "$family: an index" grep -q '"model.norm.weight": "model-0000[0-9]-of-0000[0-9].safetensors"' "$work/$family.hf/model.safetensors.index.json"
    check "$family: the tokenizer" cmp -s README.md "$work/$family.hf/README.md"
    check "$family: model_type" grep -q "\"model_type\": \"$type\"" "$work/$family.hf/config.json"
    run "$MT_BIN" ckpt import "$work/$family.hf" "$work/$family.again"
    check "$family: back" ended 0
    run "$MT_BIN" ckpt diff "$work/$family" "$work/$family.again"
    check "$family: the same to the bit" ended 0
    check "$family: the same options" cmp -s <(options_of "$work/$family") <(options_of "$work/$family.again")
done

# The tokenizer's files pass through import, training and export: those of the folder whose names are known, or what is named
mkdir "$work/hub" "$work/cards"
cp "$golden/qwen3_moe"/* "$work/hub"
echo '{"model": 1}' >"$work/hub/tokenizer.json"
echo '{"special": 2}' >"$work/hub/special_tokens_map.json"
echo 'a card' | tee "$work/hub/README.md" >"$work/cards/card.txt"
run "$MT_BIN" ckpt import "$work/hub" "$work/hub.ck"
check "a folder with a tokenizer: told" says "^tokenizer: data.tokenizer is $(realpath "$work/hub"), for exports\$"
run "$MT_BIN" ckpt export "$work/hub.ck" "$work/hub.out"
check "a folder with a tokenizer: the export has it" ended 0
check "a folder with a tokenizer: its files" cmp -s <(cd "$work/hub.out" && ls) <(printf '%s\n' config.json model.safetensors special_tokens_map.json tokenizer.json)
check "a folder with a tokenizer: as they were" cmp -s "$work/hub/tokenizer.json" "$work/hub.out/tokenizer.json"
run "$MT_BIN" ckpt export "$work/hub.ck" "$work/hub.named" --tokenizer "$work/cards/card.txt"
check "a tokenizer's file that is named is all" cmp -s <(cd "$work/hub.named" && ls) <(printf '%s\n' card.txt config.json model.safetensors)
mv "$work/hub" "$work/hub.moved"
run "$MT_BIN" ckpt export "$work/hub.ck" "$work/hub.none"
check "a tokenizer that is gone: exit code" ended 2
check "a tokenizer that is gone: said" says "^moetitan: taking data.tokenizer of the checkpoint \(.*--no-tokenizer .*: cannot find the tokenizer's '.*/hub': No such file"
check "a tokenizer that is gone: nothing is left" test ! -e "$work/hub.none"
run "$MT_BIN" ckpt export "$work/hub.ck" "$work/hub.none" --no-tokenizer
check "no tokenizer: the export" ended 0
check "no tokenizer: no files" cmp -s <(cd "$work/hub.none" && ls) <(printf '%s\n' config.json model.safetensors)
run "$MT_BIN" ckpt export "$work/hub.ck" "$work/hub.both" --no-tokenizer --tokenizer README.md
check "both: refused" ended 2

# A run's own checkpoint: f32 there and back; bf16 twice is the same as once
run make_small_run model.bias_rate=0.01 model.score=sigmoid model.qk_norm=true
check "a run that saves" ended 0
last=$work/run/ckpt/step-00000006
run "$MT_BIN" ckpt export "$last" "$work/own"
check "own: export" ended 0
check "own: one file, in the run's dtype" says '^.*/own: 1 file of weights, f32$'
check "own: no index for one file" test ! -e "$work/own/model.safetensors.index.json"
check "own: nothing is left of the writing" test ! -e "$work/own.exporting"
"$MT_BIN" ckpt import "$work/own" "$work/own.ck" >"$work/out"
run "$MT_BIN" ckpt diff "$last" "$work/own.ck"
check "own: nothing but moments differs" test "$(grep -vc 'optim\.' "$work/out")" = 3
run "$MT_BIN" ckpt export "$last" "$work/own16/" --dtype bf16
check "own: bf16" says 'bf16$'
"$MT_BIN" ckpt import "$work/own16" "$work/own16.ck" >"$work/out"
"$MT_BIN" ckpt export "$work/own16.ck" "$work/own16.2" --dtype bf16 >"$work/out"
check "own: bf16 of bf16 is the same" cmp -s "$work/own16/model.safetensors" "$work/own16.2/model.safetensors"
run "$MT_BIN" ckpt diff "$work/own.ck" "$work/own16.ck"
check "own: bf16 rounds" says '^  embed.weight +largest [0-9.e-]+ +relative [1-9][0-9.]*e-03$'
check "own: selection biases are not rounded" silent_about 'router.bias'

# What an import is for
run "$MT_BIN" train "$work/small.yaml" model.score=sigmoid model.qk_norm=true model.bias_rate=0.01 run.dir="$work/more" \
    init.from="$work/own.ck" train.steps=2
check "init.from an import" ended 0
run "$MT_BIN" train "$work/small.yaml" model.score=sigmoid model.qk_norm=true model.bias_rate=0.01 run.dir="$work/more2" \
    init.from="$work/own.ck" train.steps=2 train.micro_batch=1 mesh.ep=2 --fake-ranks 2
check "init.from an import, on two ranks" ended 0
cat >"$work/extends.yaml" <<END
extends: own.ck/config.yaml
train: {steps: 1, global_batch: 2}
optim: {warmup_steps: 0}
data: {train: "$work/text"}
init: {from: "$work/own.ck"}
run: {dir: "$work/extends"}
END
run "$MT_BIN" train "$work/extends.yaml"
check "a configuration that extends the import's" ended 0
run "$MT_BIN" sample "$work/own.ck" --tokens 3
check "a sample of an import" ended 0

# What no family can express
"$MT_BIN" train "$work/small.yaml" run.dir="$work/odd" train.steps=2 model.qk_norm=true >"$work/out" 2>&1
run "$MT_BIN" ckpt export "$work/odd/ckpt/step-00000002" "$work/odd.hf"
check "an option no family has: exit code" ended 2
check "an option no family has: named" says 'model.shared_ffn is 32: the nearest family, qwen3_moe, cannot express that'
check "an option no family has: nothing is left" test ! -e "$work/odd.hf" -a ! -e "$work/odd.hf.exporting"
"$MT_BIN" train "$work/small.yaml" run.dir="$work/bias" train.steps=2 model.qk_norm=true model.shared_ffn=0 model.bias_rate=0.01 >"$work/out" 2>&1
run "$MT_BIN" ckpt export "$work/bias/ckpt/step-00000002" "$work/bias.hf"
check "selection biases that were moved: exit code" ended 2
check "selection biases that were moved: named" says 'layers.1.moe.router.bias\[0\] is .*model.bias_rate has moved'

# Modules for further tokens
run "$MT_BIN" train "$work/small.yaml" run.dir="$work/mtp" train.steps=2 model.score=sigmoid model.qk_norm=true model.mtp_depth=2
check "a run with modules" ended 0
run "$MT_BIN" ckpt export "$work/mtp/ckpt/step-00000002" "$work/mtp.hf"
check "modules: export" ended 0
for name in eh_proj enorm hnorm shared_head.norm mlp.experts.1.up_proj; do
    check "modules: $name" grep -qa "\"model.layers.3.$name.weight\"" "$work/mtp.hf/model.safetensors"
done
check "modules: counted" grep -q '"num_nextn_predict_layers": 2' "$work/mtp.hf/config.json"
check "modules: not among the layers" grep -q '"num_hidden_layers": 2' "$work/mtp.hf/config.json"
run "$MT_BIN" ckpt import "$work/mtp.hf" "$work/mtp.ck" --mtp
check "modules: import" ended 0
run "$MT_BIN" ckpt diff "$work/mtp/ckpt/step-00000002" "$work/mtp.ck"
check "modules: nothing but moments differs" test "$(grep -vc 'optim\.' "$work/out")" = 3
run "$MT_BIN" ckpt import "$work/mtp.hf" "$work/mtp.alone"
check "modules left: import" ended 0
check "modules left: told" says '^ignored: model.layers.2.eh_proj.weight: of a layer behind the last .*; --mtp reads'
check "modules left: the model alone" grep -q 'mtp_depth: 0' "$work/mtp.alone/config.yaml"
run "$MT_BIN" sample "$work/mtp/ckpt/step-00000002" --tokens 3
check "modules: a sample" ended 0
latent=(model.attention=mla model.kv_heads=2 model.q_lora_rank=24 model.kv_lora_rank=16 model.rotary_dims=8 model.v_head_dim=16)
run "$MT_BIN" train "$work/small.yaml" run.dir="$work/latent" train.steps=2 model.score=sigmoid "${latent[@]}" model.mtp_depth=1
check "modules with latent attention: a run" ended 0
run "$MT_BIN" ckpt export "$work/latent/ckpt/step-00000002" "$work/latent.hf"
check "modules with latent attention: export" ended 0
check "modules with latent attention: counted" grep -q '"num_nextn_predict_layers": 1' "$work/latent.hf/config.json"
check "modules with latent attention: the family" grep -q '"model_type": "deepseek_v3"' "$work/latent.hf/config.json"
for name in eh_proj shared_head.norm self_attn.kv_b_proj; do
    check "modules with latent attention: $name" grep -qa "\"model.layers.2.$name.weight\"" "$work/latent.hf/model.safetensors"
done
run "$MT_BIN" ckpt import "$work/latent.hf" "$work/latent.ck" --mtp
check "modules with latent attention: import" ended 0
run "$MT_BIN" ckpt diff "$work/latent/ckpt/step-00000002" "$work/latent.ck"
check "modules with latent attention: nothing but moments differs" test "$(grep -vc 'optim\.' "$work/out")" = 3
run "$MT_BIN" ckpt import "$golden/llama" "$work/x" --mtp
check "no modules to read: exit code" ended 2
check "no modules to read: nothing else is said" test "$(wc -l <"$work/out")" = 1
check "no modules to read: said" says 'no layers that predict further tokens'
"$MT_BIN" train "$work/small.yaml" run.dir="$work/mtp3" train.steps=2 model.qk_norm=true model.shared_ffn=0 model.mtp_depth=1 >"$work/out" 2>&1
run "$MT_BIN" ckpt export "$work/mtp3/ckpt/step-00000002" "$work/mtp3.hf"
check "a family without modules" ended 0
check "a family without modules: said" says '^left out: layers.2 and behind, the modules of model.mtp_depth: qwen3_moe has none'
check "a family without modules: not there" test "$(grep -ca 'model.layers.2' "$work/mtp3.hf/model.safetensors")" = 0

# What is wrong with the words
for words in "" "a" "a b c" "a b --dtype f16" "a b --what" "a b --dtype"; do
    # shellcheck disable=SC2086 # words
    run "$MT_BIN" ckpt export $words
    check "usage of 'export $words'" ended 2
    check "usage of 'export $words' is said" says '^moetitan: usage: moetitan ckpt export'
done
run "$MT_BIN" ckpt export "$last" "$work/x" --shard-bytes 0
check "shards of nothing" says 'shard-bytes 0: '
run "$MT_BIN" ckpt export "$last" "$work/own"
check "export to what is there" says "'$work/own' is there already"
run "$MT_BIN" ckpt export "$last" "$work/x" --tokenizer "$work/none.json"
check "no such tokenizer" ended 6
check "no such tokenizer: nothing is left" test ! -e "$work/x" -a ! -e "$work/x.exporting"
run "$MT_BIN" ckpt import "$golden/llama"
check "usage of import" says '^moetitan: usage: moetitan ckpt import'
run "$MT_BIN" ckpt import "$golden/llama" "$work/llama"
check "import to what is there" says "'$work/llama' is there already"
check "import to what is there: nothing else is said" test "$(wc -l <"$work/out")" = 1
run "$MT_BIN" ckpt import "$work/nothing" "$work/x"
check "import of nothing" ended 5

# config.json
copy_of deepseek_v3 && config 's/"model_type": "deepseek_v3"/"model_type": "deepseek_v2"/'
refused "an older router" 2 'model_type "deepseek_v2" cannot be read: its router.s rule'
copy_of deepseek_v3 && config 's/"model_type": "deepseek_v3"/"model_type": "kimi_k2"/' && import_bad
check "Kimi-K2 is DeepSeek-V3" says '^family: deepseek_v3$'
copy_of deepseek_v3 && config '/"n_group": 1/d'
refused "no number of groups" 2 '8 does not divide model.experts, which is 6'
copy_of deepseek_v3 && config 's/"qk_nope_head_dim": 6/"qk_nope_head_dim": 0/'
refused "nothing but rotated dimensions" 5 'qk_nope_head_dim is no whole number from 1 to 1024'
copy_of deepseek_v3 && config 's/"num_key_value_heads": 4/"num_key_value_heads": 2/'
refused "shared keys" 2 'every query head has a key of its own'
copy_of deepseek_v3 && config 's/"mscale": 0.7/"mscale": 0.7, "attention_factor": 1.5/'
refused "a factor of its own" 2 "YaRN's attention_factor cannot be expressed"
copy_of deepseek_v3 && config '/"mscale_all_dim"/d; s/"mscale": 0.7,/"mscale": 0.7, "truncate": true,/'
refused "one weight of two" 2 "YaRN's mscale is 0.7 without an mscale_all_dim"
copy_of qwen3_window && config 's/"full_attention"/"chunked_attention"/'
refused "another attention" 2 'layer_types has something else than full_attention and sliding_attention'
copy_of qwen3_window && config 's/"sliding_window": 7/"sliding_window": null/'
refused "no width" 2 'layer_types has sliding_attention, but there is no sliding_window'
copy_of qwen3_window && config 's/"sliding_window": 7/"sliding_window": 0/'
refused "a width of nothing" 5 'sliding_window is no whole number from 1 to 16 Mi'
copy_of mixtral && config 's/"sliding_window": null/"sliding_window": 9/' && import_bad
check "a window in all layers" grep -q '^  window: 9 ' "$work/out-bad/config.yaml"
copy_of llama && config 's/"model_type": "llama"/"model_type": "gemma"/'
refused "another family" 2 'model_type "gemma" is no family that is read; these are: deepseek_v3, glm4_moe, qwen3_moe'
copy_of llama && config 's/"rope_scaling": null/"rope_scaling": {"type": "linear", "factor": 2.0}/'
refused "scaled positions" 2 'rope_type is neither "default" nor "yarn"'
copy_of glm4_moe && config 's/"n_group": 2/"n_group": 4/'
refused "groups that do not divide the experts" 2 '4 does not divide model.experts, which is 6'
copy_of glm4_moe && config 's/"n_routed_experts": 6/"n_routed_experts": 0/; s/"num_experts_per_tok": 2/"num_experts_per_tok": 0/; s/"moe_intermediate_size": 8/"moe_intermediate_size": 0/; s/"first_k_dense_replace": 1/"first_k_dense_replace": 0/; s/"n_group": 2/"n_group": 1/'
refused "a mixture of nothing" 2 'the nearest family, qwen3, cannot express that'
copy_of qwen3_moe && config 's/"num_experts_per_tok": 2,//'
refused "a missing key" 5 "config.json' has no num_experts_per_tok"
copy_of qwen2 && config 's/"hidden_size": 16/"hidden_size": 16, "hidden_size": 32/'
refused "a key twice" 5 "config.json' has a key twice: hidden_size"
copy_of qwen2 && config 's/"hidden_size": 16/"hidden_size": "16"/'
refused "a number as text" 5 'hidden_size is no whole number'
copy_of qwen2 && config 's/"num_attention_heads": 4/"num_attention_heads": 0/'
refused "out of range" 2 'num_attention_heads, as model.heads: '
copy_of qwen2 && config 's/"hidden_size": 16/"hidden_size": 32/'
refused "shapes" 5 "tensor '.*' is \[.*16.*\], config.json makes it \[.*32"
copy_of qwen2 && truncate -s 100 "$work/bad/config.json"
refused "half a config.json" 5 "config.json' is not a JSON object"

# Tensors
copy_of glm4_moe && import_bad
check "a layer behind the last is ignored" says '^ignored: model.layers.2.eh_proj.weight: of a layer behind the last'
check "rotary frequencies are ignored" says '^ignored: .*rotary_emb.inv_freq: computed from rope_theta$'
check "what config.json has besides" says '^ignored: of config.json, .*: .*output_router_logits'
copy_of llama && sed -i 's/model.norm.weight/model.nrom.weight/' "$work/bad/model.safetensors"
refused "a tensor is missing" 5 "has no tensor 'model.norm.weight'"
copy_of qwen2 && config 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' && sed -i 's/model.layers.1./model.leyers.1./g' "$work/bad/model.safetensors"
refused "an unknown tensor" 5 "nothing is known of tensor 'model.leyers.1.input_layernorm.weight'"
copy_of llama && sed -i '0,/"F16"/s//"I16"/' "$work/bad/model.safetensors"
refused "another dtype" 5 'is none of F32, BF16 and F16'
copy_of llama && truncate -s 9000 "$work/bad/model.safetensors"
refused "a file cut short" 5 'model.safetensors'
copy_of qwen3_moe && rm "$work/bad/model-00003-of-00007.safetensors"
refused "a shard is missing" 5 'model-00003-of-00007.safetensors'
copy_of qwen3_moe && sed -i 's/"lm_head.weight": "model-00001/"lm_head.weight": "model-00002/' "$work/bad/model.safetensors.index.json"
refused "an index that is wrong" 5 "the index has tensor 'lm_head.weight' in model-00002-of-00007.safetensors, but it is in model-00001"
copy_of qwen3_moe && sed -i 's|"lm_head.weight": "|&../|' "$work/bad/model.safetensors.index.json"
refused "a file elsewhere" 5 "the file of tensor 'lm_head.weight' is no plain name"
copy_of qwen3_moe && cp "$work/bad/model-00001-of-00007.safetensors" "$work/bad/model-00002-of-00007.safetensors"
refused "a tensor twice" 5 'is in model-00001-of-00007.safetensors and in model-00002'
finish
