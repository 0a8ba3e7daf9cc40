"""Word sense disambiguation by labelled examples and by glosses, against the most frequent and the first sense.

    python benchmarks/word_senses.py --data DIR [--models starter MODEL] [--names starter MiniLM] [--minutes 2]
        [--pair-model RUN]

DIR has CoarseWSD-20 (`coarsewsd20_train.jsonl`, `coarsewsd20_test.jsonl`), the revised all-words sets (`42D`,
`S10amended`, `softEN`) and Open English WordNet (`oewn_senses.tsv`, `oewn_synsets.jsonl`), whose definitions are the
glosses, in the order of WordNet's senses, and whose example sentences are labelled examples where they have the lemma
as it is spelled. The prior 0.2 was chosen on S10amended among 0, 0.1, 0.2 and 0.4; the words of that set are left out
of softEN, of which 1,500 are drawn. Words of the all-words sets whose senses are not in this WordNet are left out.

CoarseWSD-20 is measured on at most --most training and test rows of each word, drawn with a fixed seed. Each part is
added to the file of --lines as soon as it is measured, and is not repeated; none starts after --minutes.
"""

import argparse
import functools
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import begun, write_result

from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search import disambiguation
from bertsmith.inference.search.disambiguation import Disambiguator, SenseAnswer, labelled_pairs, sense_scores
from bertsmith.inference.search.sense_tables import ByWord, Gloss, WordInText
from bertsmith.inference.search.senses import Occurrence, occurrence_vectors
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder

SETS = ("S10amended", "42D", "softEN")
PRIOR = 0.2
MOST_WORDS = 1500  # of an all-words set, drawn with a fixed seed
POS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}


def in_words(tokens: Sequence[str], index: int) -> Occurrence:
    """A token in its sentence."""
    start = len(" ".join([*tokens[:index], ""]))
    return Occurrence(sentence=" ".join(tokens), start=start, end=start + len(tokens[index]))


def coarse(data: Path, split: str, most: int) -> dict[str, list[WordInText]]:
    """The examples of CoarseWSD-20 by their words, at most `most` of each, drawn with a fixed seed."""
    words: dict[str, list[WordInText]] = {}
    for number, row in enumerate(read_json_lines(data / f"coarsewsd20_{split}.jsonl")):
        occurrence = in_words(row["text"].split(" "), row["index"])
        word = WordInText(id=str(number), lemma=row["word"], occurrence=occurrence, senses=(row["sense_name"],))
        words.setdefault(row["word"], []).append(word)
    draws = np.random.default_rng(1)
    return {
        lemma: [every[number] for number in sorted(draws.permutation(len(every))[:most].tolist())]
        for lemma, every in words.items()
    }


def all_words(data: Path, name: str) -> tuple[list[WordInText], int]:
    """The words of one of the all-words sets, and how many are left out, because their senses are unknown."""
    sentences = {row["sent"]: row["tokens"] for row in read_json_lines(data / f"{name}.sentences.jsonl")}
    apart = (
        {row["id"] for row in read_json_lines(data / "S10amended.instances.jsonl")} if name != "S10amended" else set()
    )
    words, without = [], 0
    for row in read_json_lines(data / f"{name}.instances.jsonl"):
        senses = tuple(filter(None, row["oewn"]))
        without += not senses
        if senses and row["id"] not in apart:
            occurrence, lemma = in_words(sentences[row["sent"]], row["index"]), row["lemma"].lower().replace("_", " ")
            words.append(
                WordInText(id=row["id"], lemma=lemma, pos=POS[row["pos"]], occurrence=occurrence, senses=senses)
            )
    chosen = sorted(np.random.default_rng(1).permutation(len(words))[:MOST_WORDS].tolist())
    return [words[number] for number in chosen], without


@functools.cache
def wordnet(data: Path) -> tuple[list[Gloss], list[WordInText]]:
    """The glosses of all senses in order, and the words of the example sentences with their senses."""
    synsets = {row["id"]: row for row in read_json_lines(data / "oewn_synsets.jsonl")}
    lines = (data / "oewn_senses.tsv").read_text(encoding="utf-8").splitlines()[1:]
    senses = set()
    for line in lines:
        _, lemma, pos, number, synset = line.split("\t")
        senses.add((lemma.lower(), pos[0].replace("s", "a"), int(number), synset))
    seen: dict[tuple[str, str, str], Gloss] = {}
    for lemma, pos, _, synset in sorted(senses):
        gloss = Gloss(lemma=lemma, pos=pos, sense=synset, text=synsets[synset]["definition"])
        seen.setdefault((lemma, pos, synset), gloss)
    examples = []
    for synset, row in synsets.items():
        for text, lemma in itertools.product(row["examples"], row["lemmas"]):
            places = list(re.finditer(rf"(?<!\w){re.escape(lemma)}(?!\w)", text, re.IGNORECASE))
            if len(places) == 1:
                occurrence = Occurrence(sentence=text, start=places[0].start(), end=places[0].end())
                pos = row["pos"][0].replace("s", "a")
                examples.append(
                    WordInText(id=synset, lemma=lemma.lower(), pos=pos, occurrence=occurrence, senses=(synset,))
                )
    return list(seen.values()), examples


def remembered(model: str) -> Embedder:
    """The model, whose vectors of words and texts are computed once for all systems."""
    embedder = load_embedder(model, device="cpu")
    texts: dict[str, Any] = {}
    words: dict[tuple[Occurrence, str], Any] = {}
    embed = embedder.embed_counting

    def of_texts(wanted: Sequence[str]) -> Any:
        new = list(dict.fromkeys(text for text in wanted if text not in texts))
        if new:
            texts.update(zip(new, zip(*embed(new), strict=True), strict=True))
        if not wanted:
            return embed(wanted)
        vectors, cut = zip(*(texts[text] for text in wanted), strict=True)
        return np.stack(vectors), np.array(cut)

    def of_words(encoder: Any, wanted: Sequence[Occurrence], layers: str) -> Any:
        new = list(dict.fromkeys(word for word in wanted if (word, layers) not in words))
        if new:
            vectors = occurrence_vectors(encoder, new, layers)
            words.update(((word, layers), vector) for word, vector in zip(new, vectors, strict=True))
        return np.stack([words[word, layers] for word in wanted])

    embedder.embed_counting = of_texts  # type: ignore[method-assign]
    disambiguation.occurrence_vectors = of_words  # type: ignore[assignment]
    return embedder


Part = tuple[dict[str, str], Callable[[], list[SenseAnswer]]]


def parts(data: Path, models: Mapping[str, str], most: int, pair_model: str | None) -> Iterator[Part]:
    """What is measured: a key, and the function that gives the answers.

    Args:
        models: the models by their names in the result.
    """
    train, test = coarse(data, "train", most), coarse(data, "test", most)

    def answers(model: str, words: Sequence[WordInText], **known: Any) -> list[SenseAnswer]:
        if model not in loaded:
            loaded.clear()
            loaded[model] = remembered(model)
        return Disambiguator(loaded[model], **known).answers(words)

    loaded: dict[str, Embedder] = {}
    for name, model in models.items():
        for word in test:
            for method in ("nearest", "centroid"):
                key = {"model": name, "set": "CoarseWSD-20", "system": method, "part": word}
                yield key, lambda m=model, w=word, how=method: answers(m, test[w], examples=train[w], method=how)  # type: ignore[misc]
        for name_of_set in SETS:
            for system, prior, reads_usage in (
                ("glosses", 0.0, False),
                (f"glosses, prior {PRIOR:g}", PRIOR, False),
                (f"usage examples and glosses, prior {PRIOR:g}", PRIOR, True),
            ):
                key = {"model": name, "set": name_of_set, "system": system, "part": "all"}

                def by_glosses(
                    m: str = model, of_set: str = name_of_set, prior: float = prior, reads_usage: bool = reads_usage
                ) -> list[SenseAnswer]:
                    glosses, usage = wordnet(data)
                    examples = usage if reads_usage else ()
                    return answers(m, all_words(data, of_set)[0], glosses=glosses, prior=prior, examples=examples)

                yield key, by_glosses
    if pair_model is not None:
        scorer = PairScorer(load_predictor(pair_model, device="cpu"))
        for name_of_set in ("S10amended", "42D"):
            for prior in (0.0, PRIOR):
                system = "pairs" if not prior else f"pairs, prior {prior:g}"
                key = {"model": Path(pair_model).name, "set": name_of_set, "system": system, "part": "all"}

                def by_pairs(of_set: str = name_of_set, prior: float = prior) -> list[SenseAnswer]:
                    pairs = Disambiguator(None, glosses=wordnet(data)[0], scorer=scorer, prior=prior)
                    return pairs.answers(all_words(data, of_set)[0])

                yield key, by_pairs


def summary(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The scores of each system on each set, over all its parts."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["set"], line["system"], line["model"]), []).append(line)
    table = []
    for (of_set, system, model), group in groups.items():
        every = [answer for line in group for answer in map(_answer, line["answers"])]
        scores = sense_scores(every).to_dict()
        seconds = round(sum(line["seconds"] for line in group), 1)
        row = {"set": of_set, "system": system, "model": model, **scores, "parts": len(group), "seconds": seconds}
        table.append(row)
    return table


def _answer(values: list[Any]) -> SenseAnswer:
    sense, first, gold, reachable, way = values
    word = WordInText(id="", lemma="", occurrence=Occurrence(sentence="", start=0, end=0), senses=tuple(gold))
    return SenseAnswer(
        word=word, sense=sense, by=way, first=first, scores=dict.fromkeys(gold if reachable else [], 0.0)
    )


def write_training_pairs(data: Path, path: Path, most: int) -> None:
    """Writes pairs of usage examples and glosses of words with two to eight senses, drawn with a fixed seed."""
    from bertsmith.app.library.disambiguation import write_gloss_pairs

    glosses, usage = wordnet(data)
    of = ByWord(glosses).of
    several = [word for word in usage if 2 <= len(of(word)) <= 8]
    chosen = np.random.default_rng(1).permutation(len(several))[:most]
    write_gloss_pairs(path, labelled_pairs([several[number] for number in chosen], glosses)[0])


def main() -> None:
    """Measures the parts that are missing, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["starter"])
    parser.add_argument("--names", nargs="+", help="their names in the result [those of their folders]")
    parser.add_argument("--pair-model", help="a run that was fine-tuned on the pairs of --write-pairs")
    parser.add_argument("--write-pairs", type=Path, help="write training pairs there, and measure nothing")
    parser.add_argument("--examples", type=int, default=2000, help="usage examples for --write-pairs")
    parser.add_argument("--most", type=int, default=200, help="training and test rows of each word of CoarseWSD-20")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--lines", type=Path, default=Path("word_senses.jsonl"))
    arguments = parser.parse_args()
    if arguments.write_pairs is not None:
        write_training_pairs(arguments.data, arguments.write_pairs, arguments.examples)
        return
    lines = read_json_lines(arguments.lines) if arguments.lines.is_file() else []
    done, begin, left = [line["key"] for line in lines], time.monotonic(), 0
    names = arguments.names or [Path(model).name for model in arguments.models]
    models = dict(zip(names, arguments.models, strict=True))
    for key, run in parts(arguments.data, models, arguments.most, arguments.pair_model):
        if key in done:
            continue
        if time.monotonic() - begin > 60 * arguments.minutes:
            left += 1
            continue
        start = time.process_time()
        answers = run()
        line = {
            "key": key,
            **key,
            "seconds": round(time.process_time() - start, 2),
            "answers": [
                [each.sense, each.first, each.word.senses, not each.scores.keys().isdisjoint(each.word.senses), each.by]
                for each in answers
            ],
        }
        with arguments.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        lines.append(line)
    table = summary(lines)
    for row in table:
        print(f"{row['set']:13} {row['model']:8} {row['system']:45} {row['f1']:.4f} without {row['f1_of_first']:.4f}")
    described, name, _ = begun("word_senses")
    left_out = {name_of_set: all_words(arguments.data, name_of_set)[1] for name_of_set in SETS}
    write_result(
        name,
        {
            "machine": described,
            "rows_of_a_word": arguments.most,
            "words_of_a_set": MOST_WORDS,
            "left_out": left_out,
            "scores": table,
        },
    )
    print(f"parts left: {left}")


if __name__ == "__main__":
    main()
