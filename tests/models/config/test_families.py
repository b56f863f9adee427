"""Test the layers that the function of each family returns against a table of letters.

test_understood.py compares the same layers with transformers' own modules.
"""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from thorough import THOROUGH, some

from posenc.models.config import families, specify
from posenc.models.config.families import Family
from posenc.models.config.spec import Rotary, Spec

ROOT = Path(__file__).parents[3]
# Models of eight layers: a letter for each layer, then further settings. r: rotated, n: no
# encoding, b: a bias or another encoding, -: no attention. Capitals mean full attention, small
# letters a window. A new family adds a line.
LAYERS = """
afmoe: rrrNrrrN, base 10000, window 1024
axk1: RRRRRRRR, base 10000
axk2: RRRRRRRR, base 10000, unlike
bailing_hybrid: -----R--, base 6e+06
bamba: ---R---R, base 10000
beit: NNNNNNNN, both ways
big_bird: NNNNNNNN, both ways, table, unlike
bigbird_pegasus: NNNNNNNNNNNNNNNNNNNNNNNN, both ways, table, unlike
bloom: BBBBBBBB
blt_local_encoder: RRRRRRRR, base 500000
cohere2: rrrNrrrN, base 10000, window 4096
cohere2_moe: rrrNrrrN, base 10000, window 4096
cohere_compass_text: RRRRRRRR, base 10000
convbert: NNNNNNNN, both ways, table, unlike
cosmos3_edge_text: RRRRRRRR, base 1e+08
cwm: RrrrRrrr, base 1e+06, window 8192
deberta: NNNNNNNN, both ways, table
deberta-v2: NNNNNNNN, both ways, table
deepseek_v2: RRRRRRRR, base 10000
deepseek_v3: RRRRRRRR, base 10000
deepseek_v32: RRRRRRRR, base 10000, unlike
deepseek_v4: rrrrrrrr, base 160000, sinks, unlike, window 128
detr: NNNNNNNN, both ways, patchwaves
dia_decoder: RRRRRRRR, base 10000, scale 1
dia_encoder: RRRRRRRR, base 10000, both ways, scale 1
diffllama: RRRRRRRR, base 10000, unlike
diffusion_gemma_text: rrrrrRrR, base 10000, base 1e+06, scale 1, unlike, window 512
dinov3_vit: BBBBBBBB, both ways
doge: RRRRRRRR, base 10000, unlike
embedding_gemma2_text: rrrrrRrR, base 10000, base 1e+06, both ways, scale 1, window 513
esm: RRRRRRRR, base 10000, both ways
exaone4: rrrNrrrN, base 10000, window 4096
exaone_moe: rrrNrrrN, base 10000, window 4096
falcon: RRRRRRRR, base 10000
falcon_h1: RRRRRRRR, base 10000
flint: NNrrrNrN, base 10000, sinks, window 513
fnet: NNNNNNNN, both ways, table, unlike
gemma2: rRrRrRrR, base 10000, scale 0.0625, softcap 50, window 4096
gemma3_text: rrrrrRrr, base 10000, base 1e+06, scale 0.0625, window 4096
gemma3n_text: rrrrRrrr, base 10000, base 1e+06, scale 1, window 512
gemma4_text: rrrrrRrR, base 10000, base 1e+06, scale 1, window 512
gemma4_unified_text: rrrrrRrR, base 10000, base 1e+06, scale 1, window 1024
glm4_moe_lite: RRRRRRRR, base 10000
glm4v_text: RRRRRRRR, base 10000
glm5_next_text: ---N---N, unlike
glm_image_text: RRRRRRRR, base 10000
glm_moe_dsa: RRRRRRRR, base 10000, unlike
gpt-sw3: NNNNNNNN, table
gpt2: NNNNNNNN, table
gpt_bigcode: NNNNNNNN, table
gpt_neo: NNNNNNNN, scale 1, table
gpt_oss: rRrRrRrR, base 150000, sinks, window 128
granite: RRRRRRRR, base 10000, scale 1
granite4_vision_text: RRRRRRRR, base 10000, scale 1
granite_docling_text: RRRRRRRR, base 10000, scale 0.0156
granite_swa: RrrrRrrr, base 10000, scale 1, sinks, window 128
granitemoe: RRRRRRRR, base 10000, scale 1
granitemoe_swa: RrrrRrrr, base 10000, scale 1, sinks, window 128
granitemoehybrid: -R-R-R-R, base 10000, scale 1
granitemoeshared: RRRRRRRR, base 10000, scale 1
hrm_text: RRRRRRRRRRRRRRRR, base 10000, unlike
hunyuan_v1_dense: RRRRRRRR, base 10000, unlike
hunyuan_v1_moe: RRRRRRRR, base 10000, unlike
hy_v4: RRRRRRRR, base 10000, sinks, unlike
hyperclovax: RRRRRRRR, base 10000, scale 0.0884
imagegpt: NNNNNNNN, table
idefics3_vision: NNNNNNNN, both ways, patchtable
internvl_vision: NNNNNNNN, both ways, table
jamba: ----N---
kimi_linear: ----N---
kolibri1: rrrrNrrr, base 10000, window 513
laguna: RRRRRRRR, base 500000
led: NNNNNNNNNNNNNNNNNNNN, both ways, table, unlike
lfm2: --R--R--, base 1e+06
lfm2_moe: -R-R-R-R, base 1e+06
lfm3: --R-r-R-, base 10000, base 1e+06, window 256
llama4_text: rrrNrrrN, base 500000, window 8192
longcat_flash: RRRRRRRR, base 1e+07
longformer: NNNNNNNN, both ways, table, unlike
mellum: RRRRRRRR, base 500000
mimo_v2_flash: RrrrrRrr, base 10000, base 5e+06, sinks, window 129
minicpm3: RRRRRRRR, base 10000
minimax: R-R-R-R-, base 1e+06
ministral: rrrrrrrr, base 10000, window 4096
ministral3: RRRRRRRR, base 1e+06
mistral4: RRRRRRRR, base 10000
mllama_text_model: RRR-RRRR, base 500000
modernbert: RrrRrrRr, base 10000, base 160000, both ways, window 65
modernbert-decoder: RrrRrrRr, base 10000, base 160000, window 64
molmo2_text: RRRRRRRR, base 10000
moonshine: RRRRRRRR, base 10000
mpnet: BBBBBBBB, both ways, table
mpt: BBBBBBBB
mra: NNNNNNNN, both ways, table, unlike
mt5: BBBBBBBBBBBBBBBB, both ways, scale 1
muse_glimmer_text: rrrNrrrN, base 10000, window 2048
muse_spark_text: rrrNrrrN, base 500000, window 2048
nemotron_asr_streaming_encoder: BBBBBBBB, both ways, unlike
nemotron_h: ---N---N
nomic_bert: RRRRRRRR, base 1000, both ways
nystromformer: NNNNNNNN, both ways, table, unlike
olmo3: rrrRrrrR, base 500000, window 4096
olmo_hybrid: ---R---R, base 10000
openai_privacy_filter: rrrrrrrr, base 150000, both ways, sinks, window 129
paddleocr_vl_text: RRRRRRRR, base 500000
parakeet_encoder: BBBBBBBB, both ways
pix2struct_text_model: BBBBBBBB, scale 1
pop2piano: BBBBBBBBBBBBBBBB, both ways, scale 1
qianfan_ocr_vision: NNNNNNNN, both ways, table
qwen2_5_omni_talker: RRRRRRRR, base 1e+06
qwen2_5_omni_text: RRRRRRRR, base 1e+06
qwen2_5_vl_text: RRRRRRRR, base 1e+06
qwen2_5_vl_vision: bbbbbbbB, both ways, window 8
qwen2_moe: RRRRRRRR, base 10000
qwen2_vl_text: RRRRRRRR, base 1e+06
qwen3_5_moe_text: ---R---R, base 10000
qwen3_5_text: ---R---R, base 10000
qwen3_next: ---R---R, base 10000
qwen3_omni_moe_talker_text: RRRRRRRR, base 1e+06
qwen3_omni_moe_text: RRRRRRRR, base 1e+06
qwen3_vl_moe_text: RRRRRRRR, base 500000
qwen3_vl_text: RRRRRRRR, base 500000
qwen4_exp_text: ---R---R, base 1e+07, unlike
recurrent_gemma: --r--r--, base 10000, window 2048
roformer: RRRRRRRR, base 10000, both ways
sam2_prompt_encoder: , pointwaves
sam2_vision_model: , patchwaves
sam_vision_model: bbBbbBbb, both ways, patchtable, window 14
sapiens2: BBBBBBBB, both ways
smollm3: RRRNRRRN, base 2e+06
step3p5: RRRRRRRR, base 10000, scale 0.0884
swin: bbbbbbbbbbbb, both ways, window 7
swinv2: bbbbbbbbbbbb, both ways, scale 1, window 7
switch_transformers: BBBBBBBBBBBBBBBBBBBB, both ways, scale 1
t5: BBBBBBBBBBBBBBBB, both ways, scale 1
t5_gemma_module: rRrRrRrR, base 10000, scale 0.0625, softcap 50, window 4096
t5gemma2_decoder: rrrrrRrr, base 10000, base 1e+06, scale 0.0625, unlike, window 4096
t5gemma2_text: rrrrrRrr, base 10000, base 1e+06, both ways, scale 0.0625, unlike, window 2048
timesfm: NNNNNNNN, scale 1
trocr: NNNNNNNN, table
ultrabert: rrRrrRrr, base 10000, base 2.56e+06, both ways, window 129
umt5: BBBBBBBBBBBBBBBB, both ways, scale 1
unlimited_ocr_text: RRRRRRRR, base 10000
vaultgemma: rRrRrRrR, base 10000, scale 0.0625, softcap 50, window 4096
videoprism_text_model: NNNNNNNN, softcap 50, waves
vit_mae: NNNNNNNN, both ways, patchwaves
wav2vec2-conformer: BBBBBBBB, both ways
wav2vec2: NNNNNNNN, both ways, convolution
xlnet: BBBBBBBB, both ways
yoso: NNNNNNNN, both ways, table, unlike
youtu: RRRRRRRR, base 10000
zamba: --N----N, scale 0.0657
zamba2: ------N-, scale 0.112
zaya: RRRRRRRR, base 5e+06
"""
GIVEN = {  # further keys of the config
    "bamba": {"attn_layer_indices": [3, 7]},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    },
    "esm": {"position_embedding_type": "rotary"},
    "glm4v_text": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "glm_image_text": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "granitemoehybrid": {
        "layer_types": [
            "mamba",
            "attention",
            "mamba",
            "attention",
            "mamba",
            "attention",
            "mamba",
            "attention",
        ],
        "position_embedding_type": "rope",
    },
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2": {"full_attn_idxs": [2, 5]},
    "lfm2_moe": {
        "layer_types": [
            "conv",
            "full_attention",
            "conv",
            "full_attention",
            "conv",
            "full_attention",
            "conv",
            "full_attention",
        ]
    },
    "ministral": {"head_dim": 128},
    "nemotron_h": {"hybrid_override_pattern": "M-M*-ME*"},
    "qwen3_omni_moe_talker_text": {
        "rope_parameters": {"rope_theta": 1000000.0, "mrope_section": [12, 10, 10]}
    },
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen4_exp_text": {
        "rope_parameters": {"rope_theta": 10000000.0, "partial_rotary_factor": 0.25}
    },
    "step3p5": {"sliding_window": 512},
}
LINES = dict(line.split(": ", 1) for line in LAYERS.strip().splitlines())


def described(spec: Spec) -> str:
    """Format layers as in the table."""
    parts = [spec, *spec.parts.values()]
    layers = [layer for part in parts for layer in part.layers]
    letters = {Rotary: "r", type(None): "n"}
    text = "".join(
        "-" if not layer.attends else letter if layer.window else letter.upper()
        for layer in layers
        for letter in [letters.get(type(layer.encoding), "b")]
    )
    attending = [layer for layer in layers if layer.attends]
    words = {type(part.embedding).__name__.lower() for part in parts if part.embedding}
    for layer in attending:
        words |= {f"base {layer.encoding.base:g}"} if isinstance(layer.encoding, Rotary) else set()
        words |= {f"scale {layer.scale:.3g}"} if layer.scale else set()
        words |= {f"softcap {layer.softcap:g}"} if layer.softcap else set()
        words |= {f"window {layer.window}"} if layer.window else set()
        words |= {"sinks"} if layer.sinks else set()
        words |= {"both ways"} if not layer.causal else set()
        words |= {"unlike"} if layer.unsupported else set()
    return ", ".join((text, *sorted(words)))


@pytest.mark.parametrize("name", LINES)
def test_a_family_has_the_layers_of_its_line(name):
    family = families.family(name)
    config = {family.keys.get("num_hidden_layers", "num_hidden_layers"): 8} | GIVEN.get(name, {})
    if "num_hidden_layers" in family.ignored:
        del config["num_hidden_layers"]
    assert described(specify({"model_type": name, **config})) == LINES[name]


def of_files() -> dict[str, ModuleType | None]:
    return {name: families.code(families.family(name)) for name in families.model_types()}


def test_the_page_shows_the_file_of_the_family_it_adds():
    """Compare docs/families.md and CONTRIBUTING.md with the file and the line of the test."""
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    family = families.family("smollm3")
    assert block == Path(str(families.code(family).__file__)).read_text("utf-8")
    assert f"smollm3: {LINES['smollm3']}" in page
    assert "src/posenc/models/config/families/NAME.py" in (ROOT / "CONTRIBUTING.md").read_text()


def test_full_layers_of_qwen4_are_indexed_and_linear_ones_do_not_attend():
    """The class renames the types; linear layers in transformers are a gated delta rule."""
    types = ["linear_attention", "full_attention"]
    config = {"num_hidden_layers": 2, "layer_types": types} | GIVEN["qwen4_exp_text"]
    spec = specify({"model_type": "qwen4_exp_text", **config})
    assert [(layer.kind, layer.attends) for layer in spec.layers] == [
        ("linear_attention", False),
        ("indexed_attention", True),
    ]
    assert "attends only to the keys that an indexer chooses" in " ".join(spec.notes)


def test_each_file_of_the_folder_has_a_line():
    with_line = {code.__name__ for name in LINES if (code := of_files()[name])}
    folder = Path(str(families.__file__)).parent
    files = {f"{families.__name__}.{path.stem}" for path in folder.glob("*.py")}
    assert with_line == files - {f"{families.__name__}.__init__"}


def test_a_file_reads_a_model_type_by_its_name_and_nothing_else_registers_it(tmp_path, monkeypatch):
    """Define a family that transformers lacks by a file with its facts."""
    (tmp_path / "newcomer.py").write_text(
        "from posenc.models.config.layers import drop_encodings, stack\n"
        'FACTS = {"kind": "rotary", "layout": "half", "defaults": {"num_hidden_layers": 6}}\n'
        "def layers(config):\n"
        "    return drop_encodings(stack(config, config.every(3)), lambda i, layer: i % 2)\n"
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    cached = families._files, families.by_hand
    for one in cached:
        one.cache_clear()
    try:
        assert "newcomer" in families.model_types()
        sizes = {"hidden_size": 64, "num_attention_heads": 4, "sliding_window": 7}
        assert described(specify({"model_type": "newcomer", **sizes})) == (
            "rnRnrN, base 10000, window 7"
        )
    finally:
        sys.modules.pop(f"{families.__name__}.newcomer", None)
        for one in cached:
            one.cache_clear()


def test_facts_that_are_asked_are_fields_of_family_in_its_order():
    """The order in the file must not depend on the order of measurement."""
    order = [field.name for field in fields(Family)]
    for line in families._asked().values():
        assert list(line) == [name for name in order if name in line]
    assert {*re.findall(r"^    `(\w+)`", str(Family.__doc__), re.MULTILINE)} == {*order}


def test_what_a_person_read_is_about_models_that_there_are_and_said_once():
    tables = families._read()
    assert families.named_by_hand() | {*families._files()} <= {*families._asked()}
    for key in families.BY_VALUE:
        names = " ".join(tables[key].values()).split()
        assert len(names) == len({*names})
    order = {field.name for field in fields(Family)}
    assert all(facts.keys() <= order for facts in tables["facts"].values())


@pytest.mark.slow
def test_families_are_as_the_script_writes_them_from_the_transformers_that_is_installed():
    """The file must contain no manual corrections."""
    pytest.importorskip("transformers")
    asked = [*json.loads((Path(str(families.__file__)).parent / "families.json").read_text())]
    names = [] if THOROUGH else some(asked, 12)
    command = [sys.executable, str(ROOT / "tools" / "families.py"), "--check", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
