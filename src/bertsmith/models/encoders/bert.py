"""BERT: the encoder and the names of its parameters in the checkpoints of Hugging Face and of Google.

Source: Devlin et al. (2018); the variable scopes of the original modeling.py, run_classifier.py and run_squad.py; the
module names of Hugging Face's BERT.
"""

from bertsmith.models.parts.parameter_names import ParameterNames, Row, dense, layer_norm, output

_E, _H, _G = "bert.embeddings", "bert.embeddings", "bert/embeddings"
_L, _M, _N = "bert.layers.{i}", "bert.encoder.layer.{i}", "bert/encoder/layer_{i}"
_C, _D = "cls.predictions", "cls/predictions"

NAMES = ParameterNames(
    prefix="bert.",
    class_prefix="Bert",
    embeddings=(
        Row(f"{_E}.word.weight", f"{_H}.word_embeddings.weight", "VD", f"{_G}/word_embeddings"),
        Row(f"{_E}.position.weight", f"{_H}.position_embeddings.weight", "PD", f"{_G}/position_embeddings"),
        Row(f"{_E}.segment.weight", f"{_H}.token_type_embeddings.weight", "SD", f"{_G}/token_type_embeddings"),
        *layer_norm(f"{_E}.norm", f"{_H}.LayerNorm", f"{_G}/LayerNorm"),
    ),
    layer=(
        *dense(f"{_L}.query", f"{_M}.attention.self.query", "DD", f"{_N}/attention/self/query"),
        *dense(f"{_L}.key", f"{_M}.attention.self.key", "DD", f"{_N}/attention/self/key"),
        *dense(f"{_L}.value", f"{_M}.attention.self.value", "DD", f"{_N}/attention/self/value"),
        *dense(f"{_L}.attention_output", f"{_M}.attention.output.dense", "DD", f"{_N}/attention/output/dense"),
        *layer_norm(f"{_L}.attention_norm", f"{_M}.attention.output.LayerNorm", f"{_N}/attention/output/LayerNorm"),
        *dense(f"{_L}.intermediate", f"{_M}.intermediate.dense", "ID", f"{_N}/intermediate/dense"),
        *dense(f"{_L}.output", f"{_M}.output.dense", "DI", f"{_N}/output/dense"),
        *layer_norm(f"{_L}.output_norm", f"{_M}.output.LayerNorm", f"{_N}/output/LayerNorm"),
    ),
    parts={
        "pooler": dense("bert.pooler", "bert.pooler.dense", "DD", "bert/pooler/dense"),
        "mlm": (
            *dense("mlm.transform", f"{_C}.transform.dense", "DD", f"{_D}/transform/dense"),
            *layer_norm("mlm.norm", f"{_C}.transform.LayerNorm", f"{_D}/transform/LayerNorm"),
            Row("mlm.bias", f"{_C}.bias", "V", f"{_D}/output_bias"),
        ),
        "nsp": output("nsp", "cls.seq_relationship", "2D", "cls/seq_relationship/"),
        "classifier": output("classifier", "classifier", "KD", ""),
        "span": output("span", "qa_outputs", "2D", "cls/squad/"),
    },
    copies={f"{_C}.decoder.weight": "bert.embeddings.word.weight", f"{_C}.decoder.bias": "mlm.bias"},
)
