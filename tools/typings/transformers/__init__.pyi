# The names taken from transformers itself, each from the module that has it. Its own list of them
# imports all of its models, and takes longer to read than all else; modules below it are read as
# they are. A name that is missing here is an error in `make types`, and one more line.

from transformers.configuration_utils import PreTrainedConfig as PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface as AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface as AttentionInterface
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING as CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING as MODEL_MAPPING
from transformers.models.auto.modeling_auto import AutoModel as AutoModel
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.deberta_v2.configuration_deberta_v2 import (
    DebertaV2Config as DebertaV2Config,
)
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.tokenization_utils_tokenizers import (
    PreTrainedTokenizerFast as PreTrainedTokenizerFast,
)
