"""The commands that `reference_hashes.py` runs, and the generated texts and labelled examples that they read."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SUBJECTS = ("the gardener", "a sailor", "her neighbour", "the old judge", "my brother", "the miller")
VERBS = ("mended", "carried", "painted", "wanted", "watched", "counted")
THINGS = ("the broken gate", "a basket of apples", "the long letter", "seven candles", "an empty boat")
ENDS = ("before the rain came", "without a word", "in the cold morning", "near the bridge")
GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")
PEOPLE, PLACES = ("anna", "bert", "carl"), ("rome", "oslo", "lima")

PIECES = 200
CONFIG = {
    "vocab_size": PIECES,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


class Step(NamedTuple):
    """One command.

    Attributes:
        arguments: as typed by a user, separated by spaces.
        stdin: the input of the command.
        texts: further arguments, which may contain spaces.
        stop_at: interrupt the command when a folder of this name is moved into place.
        name: key of its answer in the record; by default the first argument and the values of --out.
    """

    arguments: str
    stdin: str = ""
    texts: tuple[str, ...] = ()
    stop_at: str = ""
    name: str = ""


def steps() -> Iterator[Step]:
    """All commands, in the order of their dependencies."""
    yield from text_steps()
    yield from pretraining_steps()
    yield from finetuning_steps()
    yield from answering_steps()
    yield from vector_steps()
    yield from conversion_steps()


def text_steps() -> Iterator[Step]:
    """From texts to a vocabulary and a corpus."""
    yield Step(f"vocab text --size {PIECES} --out vocab.txt --report vocab-report.json")
    yield Step(f"vocab text --size {PIECES} --cased --out vocab-cased.txt")
    lines = "The gardener mended the broken gate.\n\nHéllo, [MASK] anna!\nunaffable boats\n"
    for number, options in enumerate(("", "--ids", "--no-special-tokens")):
        yield Step(f"tokenize --vocab vocab.txt {options}", lines, name=f"tokenize {number}")
    yield Step("inputs --vocab vocab.txt --max-length 12", texts=("the old judge watched", "a sailor"))
    yield Step("corpus text --vocab vocab.txt --workers 1 --held-out 0.1 --out corpus")
    yield Step("corpus text --vocab vocab.txt --workers 2 --shard-bytes 4096 --form lines --out corpus-shards")
    yield Step("check corpus --evaluation text/harbour.txt --config config.json --json")
    for objective in ("mlm+nsp", "mlm+sop"):
        yield Step(
            f"rates corpus --rows 200 --max-length 32 --whole-word --objective {objective}", name=f"rates {objective}"
        )


def pretraining_steps() -> Iterator[Step]:
    """Every objective, optimizer and schedule once, and an interrupted run."""
    common = (
        "--max-length 32 --rows-per-step 8 --device cpu --seed 3 --evaluation-rows 16 --log-every 5 "
        "--learning-rate 2e-3"
    )
    small = f"{common} --config config.json --precision fp32"
    runs = {
        "nsp": f"{small} --steps 40 --objective mlm+nsp",
        "mlm": f"{small} --steps 40 --objective mlm --dynamic --whole-word --schedule constant --optimizer lamb",
        "sop": f"{small} --steps 40 --objective mlm+sop --dynamic --warmup-share 0.2 --bias-correction",
        "nsp-alone": f"{small} --steps 40 --objective nsp --schedule hf_linear --weight-decay 0.1 --beta2 0.99",
        "left-to-right": f"{small} --steps 40 --objective left-to-right --dropout 0 --warmup-steps 4",
        "static": f"{small} --steps 40 --dupe-factor 2 --whole-word --short-sequence-probability 0.5 "
        "--block-tokens 2000",
        "lamb": f"{small} --steps 40 --optimizer lamb --bias-correction --clip-norm 0.5",
        "long": f"{small} --steps 40 --long-length 64 --long-share 0.25 --tokens-per-step 300 --micro-tokens 150",
        "masks": f"{small} --steps 20 --masked-share 0.3 --mask-share 0.5 --keep-share 0.2 --random-share 0.3",
        "best": f"{small} --steps 20 --evaluate-every 5 --keep-best mlm_accuracy --patience 2 --save-every 5",
        "tokens": f"{small} --tokens 4000",
        "more": f"{common} --precision fp32 --steps 20 --init pretrained/nsp/model --dropout 0.2",
        "fast": f"{common} --precision auto --steps 20 --config config.json",
        "sinusoidal": f"{common} --precision fp32 --steps 6 --size tiny --positions sinusoidal",
        "none": f"{common} --precision fp32 --steps 6 --size tiny --positions none",
    }
    for name, options in runs.items():
        yield Step(f"pretrain corpus --out pretrained/{name} {options}")
    stopped = f"pretrain corpus --out pretrained/stopped {runs['nsp']} --save-every 10"
    yield Step(stopped, stop_at="step-00000020", name="pretrain pretrained/stopped until step 20")
    yield Step("pretrain corpus --out pretrained/stopped --resume")
    yield Step("report pretrained/nsp pretrained/lamb --out compared.html")


def finetuning_steps() -> Iterator[Step]:
    """Every kind of task, every way to train it, and an interrupted run."""
    common = (
        "--model pretrained/nsp/model --seeds 1 --epochs 4 --batch-size 4 --learning-rate 5e-3 --device cpu "
        "--precision fp32 --max-length 32"
    )
    single = f"{common} --task classification --train data/single.csv"
    questions = "--stride 8 --max-question 8 --max-answer 6"
    runs = {
        "single": f"{single} --dev data/single-dev.csv --calibrate",
        "several": f"{common} --task multi-label --train data/several.jsonl",
        "pair": f"{common} --task classification --train data/pair.tsv --dev data/pair.tsv",
        "number": f"{common} --task regression --train data/number.csv --dev data/number.csv",
        "choice": f"{common} --task swag --train data/choice.csv --dev data/choice.csv",
        "codah": f"{common} --task codah --train data/codah.tsv --dev data/codah.tsv",
        "tags": f"{common} --task ner --train data/tags.conll --dev data/tags.conll",
        "context": f"{common} --task ner --train data/tags.conll --dev data/tags.conll --document-context",
        "pos": f"{common} --task pos --train data/tags.conll --dev data/tags.conll",
        "answer": f"{common} --task squad --train data/answer.json --dev data/answer.json {questions}",
        "none": f"{common} --task squad2 --train data/none.json --dev data/none.json {questions}",
        "windows": f"{single} --long-text windows --max-length 12 --stride 4 --pooling max",
        "ends": f"{single} --long-text head_tail --max-length 8 --schedule constant --bias-correction",
        "frozen": f"{single} --freeze body --limit 12 --seed 5",
        "layers": f"{single} --reinit-layers 1 --layer-decay 0.8 --dropout 0.3 --evaluate-every 2 --patience 2",
        "cola": f"{common} --task cola --train data/cola.tsv --dev data/cola.tsv",
        "seeds": f"{single} --dev data/single-dev.csv --seeds 2",
        "untrained": f"{single} --model pretrained/none/model",
        "causal": f"{single} --model pretrained/left-to-right/model",
    }
    for name, options in runs.items():
        # If an option is given twice, the last one counts.
        yield Step(f"finetune --out tuned/{name} {options}")
    stopped = f"finetune --out tuned/stopped {runs['single']} --save-every 3"
    yield Step(stopped, stop_at="step-00000006", name="finetune tuned/stopped until step 6")
    yield Step(f"{stopped} --resume")
    yield Step("report tuned/single tuned/seeds --out compared-tuned.html", name="report tuned")
    yield Step("glue tuned/cola")


def answering_steps() -> Iterator[Step]:
    """Predictions of pre-trained and fine-tuned models."""
    model = "--device cpu --model pretrained/nsp/model"
    gaps = "the gardener [MASK] the broken gate\n[MASK] anna [MASK] .\n"
    yield Step(f"fill {model} -", gaps)
    yield Step(f"fill {model} --top 3 --json -", gaps, name="fill in JSON")
    yield Step("fill --device cpu --model pretrained/mlm/model -", gaps, name="fill without next sentence")
    follows = ("a sailor carried seven candles", "near the bridge", "the miller counted the long letter .")
    yield Step(f"next {model}", texts=follows)
    yield Step("next --device cpu --json --model pretrained/sop/model", texts=follows, name="next in JSON")
    texts = "a good film near the bridge\n\nthe awful , poor letter was bad\n"
    pairs = "the gardener\ta good gate\nanna in rome\tthe awful letter\n"
    sentences = 'anna watched the sailor in oslo .\n{"words": ["Carl", "in", "lima"]}\n\n'
    question = "who ?\ta sailor painted anna before the rain came in oslo near the bridge\nwhere ?\tseven candles\n"
    choices = "the gardener\ta good gate\tan awful gate\tthe boat\n"
    asked = {
        "single": ("single-dev.csv", texts),
        "several": ("several.jsonl", texts),
        "pair": ("pair.tsv", pairs),
        "number": ("number.csv", texts),
        "choice": ("choice.csv", choices),
        "codah": ("codah.tsv", choices),
        "tags": ("tags.conll", sentences),
        "context": ("tags.conll", sentences),
        "pos": ("tags.conll", sentences),
        "answer": ("answer.json", question),
        "none": ("none.json", question),
        "windows": ("single-dev.csv", texts),
        "cola": ("cola.tsv", texts),
    }
    for name, (data, lines) in asked.items():
        model = f"--device cpu --model tuned/{name}/model"
        yield Step(f"predict {model}", lines, name=f"predict {name}")
        yield Step(f"predict {model} --json", lines, name=f"predict {name} in JSON")
        yield Step(f"evaluate {model} --data data/{data} --json", name=f"evaluate {name}")
    yield Step("evaluate --device cpu --model tuned/single/model --data data/single.csv")
    test = "--test data/cola-test.tsv"
    yield Step(f"predict --device cpu --model tuned/cola/model {test}", name="predict a test file")
    yield Step(f"predict --device cpu --model tuned/cola/model {test} --submission submitted", name="predict to submit")
    for precision in ("bf16", "fp64", "int8"):
        typed = f"predict --device cpu --model tuned/single/model --json --precision {precision}"
        yield Step(typed, texts, name=f"predict in {precision}")
    yield Step("convert tuned/single/model quantized --to huggingface", name="convert before quantize")
    for limit in (0, 1):
        quantize = f"quantize --model quantized --data data/single.csv --limit {limit} --json"
        yield Step(quantize, name=f"quantize with limit {limit}")
    yield Step("predict --device cpu --model quantized --json --precision int8", texts, name="predict quantized")


def vector_steps() -> Iterator[Step]:
    """Vectors of texts and words, and searches with them."""
    model = "--device cpu --model pretrained/nsp/model"
    embed = f"embed data/passages.txt {model}"
    for pooling in ("mean", "cls", "pooler", "max"):
        yield Step(f"{embed} --pooling {pooling} --out vectors/{pooling}.npy")
    for layers in ("second-to-last", "sum-all", "embeddings", "-1,0"):
        yield Step(f"{embed} --layers {layers} --out vectors/layers{layers}.npy")
    yield Step(f"{embed} --layers -2,-1 --normalize --out vectors/normalized.npy")
    yield Step(f"{embed} --text --float16 --max-length 8 --out vectors/short.parquet")
    yield Step("embed data/single.csv --device cpu --model tuned/single/model --out vectors/tuned.npy")
    yield Step(f"{embed} --precision int8 --out vectors/int8.npy")
    yield Step("embed data/passages.txt --device cpu --model pretrained/left-to-right/model --out vectors/causal.npy")
    features = f"features data/passages.txt {model}"
    for layers in ("last", "sum-all", "-1,0"):
        yield Step(f"{features} --layers {layers} --out features/layers{layers}.npy")
    yield Step(f"{features} --layers 1 --words mean --max-length 8 --out features/mean.npy")
    yield Step(f"{features} --pieces --float16 --out features/pieces.parquet")
    yield Step("vectors vectors/mean.npy --center --remove-top 1 --normalize --out vectors/centered.npy")
    yield Step(
        "vectors vectors/mean.npy --whiten --dimensions 8 --save-changes vectors/changes.safetensors", name="whiten"
    )
    yield Step("vectors vectors/cls.npy --changes vectors/changes.safetensors --out vectors/changed.npy --json")
    search = "search data/passages.txt --json"
    queries = "--queries data/queries.tsv --top 4"
    yield Step(f"{search} {model} {queries} --index index.safetensors", name="search by vectors")
    yield Step(f"{search} {queries} --bm25", name="search by words")
    yield Step(f"{search} {model} {queries} --bm25 --bm25-words pieces", name="search by pieces")
    yield Step(f"{search} {model} {queries} --hybrid --changes vectors/changes.safetensors", name="search by both")
    yield Step(f"{search} {queries} --bm25 --rerank tuned/pair/model --device cpu", name="search again")
    yield Step(f"{search} {model} --queries data/queries.tsv --judgements data/judged.txt", name="search with scores")
    for method in ("k-means", "agglomerative"):
        senses = f"senses letter text {model} --most 60 --clusters 3 --method {method} --json --beside gate"
        yield Step(senses, name=f"senses by {method}")


def conversion_steps() -> Iterator[Step]:
    """Conversions to other formats and back."""
    for name in ("pretrained/nsp", "tuned/tags", "tuned/single"):
        short = name.split("/")[1]
        if name.startswith("pretrained"):
            yield Step(f"convert {name}/model converted/{short}-google --to google", name=f"convert {short} to google")
            back = f"convert converted/{short}-google converted/{short}-back --to huggingface --uncased"
            yield Step(back, name=f"convert {short} back")
            yield Step(f"inspect converted/{short}-google --names", name=f"inspect {short}")
        yield Step(f"convert {name}/model converted/{short}-onnx --to onnx", name=f"convert {short} to onnx")
    yield Step("inspect tuned/tags/model --names", name="inspect tags")
    yield Step("sizes --json")


def write_data(folder: Path) -> None:
    """Writes the texts and labelled examples that the commands read."""
    numbers = itertools.cycle(_draws())

    def pick(choices: Sequence[str]) -> str:
        return choices[next(numbers) % len(choices)]

    def sentence() -> str:
        return f"{pick(SUBJECTS)} {pick(VERBS)} {pick(THINGS)} {pick(ENDS)}"

    def write(name: str, lines: Sequence[str]) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name in ("garden", "harbour"):
        documents = ["\n".join(f"{sentence().capitalize()}." for _ in range(6)) for _ in range(40)]
        write(f"text/{name}.txt", ["\n\n".join(documents)])
    places = [
        f"{pick(PEOPLE).title()} of {pick(PLACES).title()} was {pick(GOOD + BAD)}. Who? Where?" for _ in range(40)
    ]
    write("text/village.txt", ["\n\n".join("\n".join(places[i : i + 4]) for i in range(0, 40, 4))])
    labelled = [(f"{pick(SUBJECTS)} {pick(GOOD if i % 2 else BAD)} {pick(ENDS)}", i % 2) for i in range(24)]
    single = [f"{text},{'positive' if good else 'negative'}" for text, good in labelled]
    write("data/single.csv", ["text,label", *single])
    write("data/single-dev.csv", ["text,label", *single[:10]])
    several = []
    for number in range(24):
        names = [name for name, bit in (("person", 1), ("place", 2)) if number & bit]
        words = [pick(PEOPLE) if name == "person" else pick(PLACES) for name in names]
        several.append(json.dumps({"text": " ".join([pick(SUBJECTS), *words]), "labels": names}))
    write("data/several.jsonl", several)
    pair = [f"{pick(SUBJECTS)}\t{pick(GOOD if i % 2 else BAD)} {pick(THINGS)}\t{'yn'[i % 2]}" for i in range(24)]
    write("data/pair.tsv", ["text\ttext2\tlabel", *pair])
    write(
        "data/number.csv",
        ["text,label", *(f"{' '.join([pick(GOOD)] * (i % 4 + 1))} {pick(ENDS)},{i % 4}" for i in range(24))],
    )
    choice, codah = [], []
    for number in range(24):
        right = number % 3
        endings = [f"{pick(GOOD if ending == right else BAD)} {pick(THINGS)}" for ending in range(3)]
        choice.append(f"{number},{pick(SUBJECTS)},was,{','.join(endings)},{right}")
        codah.append("\t".join(["n", pick(SUBJECTS), *endings, pick(THINGS), str(right)]))
    write("data/choice.csv", ["id,sent1,sent2,ending0,ending1,ending2,label", *choice])
    write("data/codah.tsv", codah)
    tagged = []
    for _ in range(24):
        kinds = [
            ((pick(PEOPLE), "B-PER"), (pick(PLACES), "B-LOC"), (pick(VERBS), "O"))[next(numbers) % 3] for _ in range(6)
        ]
        tagged.append("\n".join(f"{word.title()} {tag}" for word, tag in kinds) + "\n")
    write("data/tags.conll", tagged)
    for name, unanswerable in (("answer", False), ("none", True)):
        paragraphs = []
        for number in range(24):
            person, where = pick(PEOPLE), pick(PLACES)
            context = f"{pick(SUBJECTS)} {pick(VERBS)} {person} {pick(ENDS)} in {where} {pick(ENDS)} ."
            answer = (person, where)[number % 2]
            question: dict[str, Any] = {"id": str(number), "question": ("who ?", "where ?")[number % 2]}
            question["answers"] = [{"text": answer, "answer_start": context.index(answer)}]
            if unanswerable:
                question["is_impossible"] = number % 3 == 0
                question |= {"answers": []} if number % 3 == 0 else {}
            paragraphs.append({"context": context, "qas": [question]})
        content = {"version": "2.0" if unanswerable else "1.1", "data": [{"title": name, "paragraphs": paragraphs}]}
        write(f"data/{name}.json", [json.dumps(content)])
    write("data/cola.tsv", [f"gj04\t{good}\t{'' if good else '*'}\t{text}" for text, good in labelled])
    write("data/cola-test.tsv", ["index\tsentence", *(f"{i}\t{text}" for i, (text, _) in enumerate(labelled[:8]))])
    write("data/passages.txt", [*(sentence() for _ in range(30)), "", "anna of rome", sentence()])
    write("data/queries.tsv", ["id\tquery", "q1\tthe broken gate", "q2\ta sailor near the bridge", "q3\tzzz"])
    write("data/judged.txt", ["q1 0 1 1", "q1 0 4 2", "q2 0 2 1", "q2 0 9 1"])


def _draws() -> list[int]:
    """A few thousand pseudo-random numbers, always the same."""
    state, draws = 1, []
    for _ in range(9973):
        state = (state * 1103515245 + 12345) % 2**31
        draws.append(state >> 16)
    return draws
