"""The corpus checks: problems that should be found before a model is trained on a corpus.

A loss that stays near the unigram entropy has a few well-known causes in the data: repeated lines, lines that are not
sentences, documents without boundaries, a vocabulary that does not fit. The checks detect all of them.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.progress import Progress, counted, short_repr
from bertsmith.base.core.requests import takes
from bertsmith.text.corpus.frequencies import entropy
from bertsmith.text.corpus.hashing import HashCounts, Hashes, HashSet, has, run_hashes
from bertsmith.text.corpus.overlap import EvaluationSet, Overlap, document_grams, evaluation_texts
from bertsmith.text.corpus.request import CheckRequest
from bertsmith.text.corpus.shards import Corpus, DocumentBatch
from bertsmith.text.corpus.weights import weight_lines
from bertsmith.text.documents.forms import BY_BLANK_LINES, BY_FILES
from bertsmith.text.documents.languages import language_advice, language_lines

LENGTH_BINS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Smallest sentence length, in tokens, of each bin of the histogram."""

_SPLIT = ("prose", "texts", "wrapped", "paragraphs")  # forms whose text is split into sentences
_SHOWN_REPEATS = 5
_SHOWN_CHARACTERS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """The findings of the corpus checks.

    Args:
        repeated_sentences: the number of sentences with the ids of earlier ones; sentences with [UNK] are not compared.
        repeated_documents: the number of documents with the ids of earlier ones; documents that are mostly [UNK] are
            not compared. Once copies are removed, such texts differ by something that the vocabulary does not tell,
            such as accents.
        counted_one_in: 1, or N in a very large corpus, where repeats are estimated from one sentence in N.
        sentence_lengths: the number of sentences in each of `LENGTH_BINS`.
        unigram_entropy: nats; the loss of a model that only knows token frequencies.
        model_vocabulary: the vocabulary size of the model to be trained, if given.
        held_out, removed, languages, sources: what the manifest records of the held-out documents, of what was removed,
            of the languages, and of the sources with a weight; empty if there is none.
        casing: a mismatch between vocabulary and lower-casing, or "".
        form: the setting `form` with which the files were read.
    """

    folder: str
    documents: int
    sentences: int
    tokens: int
    words: int
    held_out_documents: int
    repeated_sentences: int
    repeats: tuple[tuple[str, int], ...]
    repeated_documents: int
    counted_one_in: int
    one_sentence_documents: int
    sentence_lengths: tuple[int, ...]
    unknown_tokens: int
    unigram_entropy: float
    vocabulary: int
    unused_pieces: int
    model_vocabulary: int | None
    overlaps: tuple[Overlap, ...]
    held_out: dict[str, Any]
    removed: dict[str, Any]
    languages: dict[str, Any]
    read: dict[str, Any]
    casing: str
    form: str
    unknown_sentences: int = 0
    sources: tuple[dict[str, Any], ...] = ()

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """All numbers and the advice, as plain values for JSON."""
        return {**dataclasses.asdict(self), "advice": self.advice()}

    def lines(self) -> list[str]:
        """The report as text, numbers first, advice last."""
        sample = f", estimated from one sentence in {self.counted_one_in}" if self.counted_one_in > 1 else ""
        lines = [
            f"{counted(self.documents, 'document')}, {counted(self.sentences, 'sentence')},"
            f" {counted(self.tokens, 'token')} ({counted(self.words, 'word')} read)",
            self._held_out_line(),
            *_removal_lines(self.removed),
            *language_lines(self.languages),
            *weight_lines(list(self.sources), self.tokens),
            f"repeated: {_share(self.repeated_sentences, self.sentences)} of the sentences,"
            f" {_share(self.repeated_documents, self.documents)} of the documents{sample}",
            *(
                [f"    not compared, because of unknown tokens: {counted(self.unknown_sentences, 'sentence')}"]
                * bool(self.unknown_sentences)
            ),
            *(f"    {counted(count, 'time')}: {text}" for text, count in self.repeats),
            f"documents of one sentence: {_share(self.one_sentence_documents, self.documents)}",
            "tokens in a sentence:",
            *self._histogram(),
            f"unknown tokens: {_share(self.unknown_tokens, self.tokens)}",
            f"vocabulary pieces that never occur: {self.unused_pieces:,} of {self.vocabulary:,}",
            f"unigram entropy: {self.unigram_entropy:.3f} nats (the loss of a model that only knows token frequencies)",
        ]
        for overlap in self.overlaps:
            lines.append(
                f"of '{overlap.name}', the corpus contains"
                f" {_share(overlap.known_sentences, overlap.sentences)} of the sentences,"
                f" {_share(overlap.known_grams, overlap.grams)} of the 13-token runs"
                + (
                    f"; not compared: {overlap.unknown_sentences:,} with unknown tokens"
                    if overlap.unknown_sentences
                    else ""
                )
            )
        return lines + [f"advice: {line}" for line in self.advice()]

    def advice(self) -> list[str]:
        """The recommended fixes, one line per problem; empty if there are none."""
        return [advice for wrong, advice in self._checks() if wrong]

    def _histogram(self) -> Iterator[str]:
        most = max(self.sentence_lengths)
        names = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in itertools.pairwise(LENGTH_BINS)]
        for name, count in zip([*names, f"{LENGTH_BINS[-1]}+"], self.sentence_lengths, strict=True):
            yield f"    {name:>8} {count:>12,} {'#' * round(40 * count / most)}".rstrip()

    def _held_out_line(self) -> str:
        requested = self.held_out.get("share", 0.0)
        if not requested:
            return "held out: nothing, as requested" if self.held_out else "held out: these are the held-out documents"
        tokens = self.held_out["tokens"]
        return (
            f"held out: {_share(self.held_out_documents, self.documents + self.held_out_documents)} of the documents,"
            f" {_share(tokens, self.tokens + tokens)} of the tokens; requested: {100 * requested:g} %"
        )

    def _checks(self) -> Iterator[tuple[bool, str]]:
        requested = self.held_out.get("share", 0.0)
        kept = self.held_out.get("tokens", 0) / max(self.tokens + self.held_out.get("tokens", 0), 1)
        yield (
            requested > 0 and not requested / 2 <= kept <= 2 * requested,
            f"{100 * kept:.3g} % of the text is held out instead of the requested {100 * requested:g} %, because whole"
            " documents are drawn, and there are few of them or their lengths differ widely."
            f" {self._more_documents()}, or try another --held-out",
        )
        long, short = self.sentence_lengths[-1], sum(self.sentence_lengths[:2])
        yield (
            self.repeated_sentences > 0.1 * self.sentences and not self._has_copies,
            "many sentences are repeated; a model memorizes them and learns little else."
            " --remove-boilerplate of `bertsmith corpus` removes menus and headers, --remove-duplicates near removes"
            " copies of documents",
        )
        yield (
            self.repeated_documents > 0 and not self._has_copies and "duplicates" not in self.removed,
            "some documents occur more than once; remove the copies with --remove-duplicates exact, or near, which also"
            " removes those that are nearly equal",
        )
        yield (
            self.one_sentence_documents > 0.5 * self.documents,
            "most documents are a single sentence, so there is no next sentence to predict, and no running text for a"
            " model that carries its state or for --contiguous rows. "
            + (
                "Put blank lines only between documents"
                if BY_BLANK_LINES in self._divisions
                else "Use longer documents"
            )
            + ", or train without next-sentence prediction",
        )
        yield (
            self.documents == 1,
            f"there is only one document, so random next sentences come from the same text. {self._more_documents()}",
        )
        yield (
            long > 0.01 * self.sentences,
            "many sentences are longer than 512 tokens; "
            + (
                "look for lists, tables and text without punctuation"
                if self.form in _SPLIT
                else "the text was probably not split into sentences. Read it with --form prose"
            ),
        )
        yield (
            short > 0.5 * self.sentences,
            "most sentences are shorter than 4 tokens, perhaps "
            + ("lists or tables" if self.form in _SPLIT else "wrapped lines or tables. Read prose with --form prose"),
        )
        yield (
            self.unknown_tokens > 0.01 * self.tokens,
            "the vocabulary does not fit this text; learn one from it with `bertsmith vocab`",
        )
        yield from language_advice(self.languages)
        yield bool(self.casing), self.casing
        yield (
            self.unused_pieces > 0.5 * self.vocabulary,
            "more than half of the vocabulary never occurs; a smaller one trains faster",
        )
        yield (
            self.model_vocabulary not in (None, self.vocabulary),
            f"the vocabulary of the model has {self.model_vocabulary} pieces and that of the corpus {self.vocabulary};"
            " they must be the same",
        )
        for overlap in self.overlaps:
            yield overlap.share > 0.01, f"the corpus contains parts of '{overlap.name}', so its scores will be too high"
        yield (
            self.read.get("encoding_errors", 0) > 0,
            f"bytes that were not UTF-8 and were dropped: {self.read.get('encoding_errors')}; see inputs.jsonl for the"
            " files",
        )
        yield (
            self.read.get("skipped_files", 0) > 0,
            f"files that were skipped: {self.read.get('skipped_files')}; see inputs.jsonl for the reasons",
        )
        yield (
            self.read.get("cut_lines", 0) + self.read.get("cut_documents", 0) > 0,
            "lines or documents were too long and were cut; see inputs.jsonl for the files",
        )

    @property
    def _has_copies(self) -> bool:
        """Whether documents are there several times because of their weight, or the share of their language."""
        return bool(self.languages) or any(source["weight"] > 1 for source in self.sources)

    @property
    def _divisions(self) -> dict[str, int]:
        """Text files by what divides them into documents."""
        return dict(self.read["divisions"])

    def _more_documents(self) -> str:
        """How to get more documents from the text, as the files were read."""
        if self._divisions.get(BY_FILES):
            return (
                "A file of prose is one document: if its blank lines divide documents, read it with --form texts; if "
                "only two or more in a row do, with --form gaps"
            )
        if self._divisions.get(BY_BLANK_LINES):
            return "Put blank lines between documents, or add text"
        return "Add text"


@takes(CheckRequest)
def check_corpus(request: CheckRequest) -> CorpusReport:
    """The contents of the corpus in `folder` and its likely problems.

    Raises:
        CorpusError: `folder` is not a corpus or is damaged.
        InputError: an evaluation file cannot be read.
    """
    folder, files, verify = request.folder, request.evaluation_files, request.verify
    corpus = Corpus.open(folder, verify=verify)
    sets = [EvaluationSet.of_texts(str(file), evaluation_texts(file), corpus.tokenizer) for file in files]
    held_out = corpus.held_out(verify=verify)
    if held_out is not None:
        sets.append(EvaluationSet.of_corpus("held_out", held_out))
    sentences, documents = HashCounts(corpus.num_sentences), HashCounts(corpus.num_documents)
    tokens = np.zeros(len(corpus.vocabulary), dtype=np.int64)
    bins = np.zeros(len(LENGTH_BINS), dtype=np.int64)
    unk, unknown_sentences = corpus.vocabulary.unk_id, 0
    with Progress("checking the corpus", corpus.num_tokens, "tokens") as progress:
        for batch in corpus.batches:
            hashes = run_hashes(batch.tokens, batch.sentence_lengths)
            # Two unknown pieces may be different words; of a document, the others tell enough unless they are few.
            is_unknown = has(batch.tokens, batch.sentence_lengths, unk)
            unknown_sentences += int(is_unknown.sum())
            sentences.add(hashes[~is_unknown])
            counts = np.diff(batch.sentence_offsets)
            unknown = np.concatenate([[0], np.cumsum(batch.tokens == unk)])[batch.token_offsets]
            is_known = 2 * np.diff(unknown) <= np.diff(batch.token_offsets)
            documents.add(run_hashes(hashes, counts)[is_known])
            tokens += batch.token_counts(len(tokens))
            bin_numbers = np.searchsorted(LENGTH_BINS, batch.sentence_lengths, side="right") - 1
            bins += np.bincount(bin_numbers, minlength=len(bins))
            if sets:
                grams = document_grams(batch, unk)
                for evaluation in sets:
                    evaluation.meet(hashes, grams)
            progress.advance(len(batch.tokens))
    return CorpusReport(
        folder=str(folder),
        documents=corpus.num_documents,
        sentences=corpus.num_sentences,
        tokens=corpus.num_tokens,
        words=corpus.manifest["read"]["words"],
        held_out_documents=held_out.num_documents if held_out is not None else 0,
        repeated_sentences=sentences.repeated,
        repeats=tuple(_most_repeated(corpus, *sentences.finish())),
        repeated_documents=documents.repeated,
        counted_one_in=sentences.one_in,
        one_sentence_documents=int((corpus.sentence_counts == 1).sum()),
        sentence_lengths=tuple(bins.tolist()),
        unknown_tokens=int(tokens[unk]),
        unknown_sentences=unknown_sentences,
        unigram_entropy=entropy(tokens),
        vocabulary=len(corpus.vocabulary),
        unused_pieces=int((tokens == 0).sum()),
        model_vocabulary=request.model_vocabulary,
        overlaps=tuple(evaluation.result() for evaluation in sets),
        held_out=dict(corpus.manifest.get("held_out", {})),
        removed=dict(corpus.manifest.get("removed", {})),
        languages=dict(corpus.manifest.get("languages", {})),
        read=corpus.manifest["read"],
        form=str(corpus.manifest["settings"].get("form", "auto")),
        casing=corpus.tokenizer.casing_problem or "",
        sources=tuple(corpus.manifest.get("sources", ())),
    )


def _most_repeated(corpus: Corpus, hashes: Hashes, counts: npt.NDArray[np.int64]) -> Iterator[tuple[str, int]]:
    """The texts and counts of the most repeated sentences, most frequent first."""
    top = np.argsort(-counts, kind="stable")[:_SHOWN_REPEATS]
    wanted = {int(hashes[position]): int(counts[position]) for position in top if counts[position] > 1}
    texts: dict[int, str] = {}
    for batch in corpus.batches:
        if len(texts) == len(wanted):
            break
        texts = _texts_of(batch, corpus, wanted) | texts
    yield from ((texts[key], count) for key, count in wanted.items())


def _texts_of(batch: DocumentBatch, corpus: Corpus, wanted: dict[int, int]) -> dict[int, str]:
    """The texts of the sentences of a batch whose hashes are wanted, by hash."""
    hashes = run_hashes(batch.tokens, batch.sentence_lengths)
    ends = np.cumsum(batch.sentence_lengths, dtype=np.int64)
    positions = np.flatnonzero(HashSet(np.array(list(wanted), dtype=np.uint64)).places(hashes) >= 0)
    texts = {}
    for position in positions.tolist():
        if int(hashes[position]) not in texts:
            ids = batch.tokens[ends[position] - batch.sentence_lengths[position] : ends[position]][:_SHOWN_CHARACTERS]
            texts[int(hashes[position])] = _shortened(corpus.tokenizer.decode(ids, skip_special=False))
    return texts


def _removal_lines(record: dict[str, Any]) -> Iterator[str]:
    """Lines of the report on the removed documents and sentences, from the manifest."""
    if gone := record.get("duplicates"):
        by_url = "documents_without_url" in gone
        exact = f" ({gone['copies']:,} exact)" if (by_url or "similarity" in gone) and gone["documents"] else ""
        how = "copies or near-duplicates" if "similarity" in gone else "copies"
        how = "documents with the URL" if by_url else how
        kept = f"; {counted(gone['documents_without_url'], 'document')} without a URL kept" if by_url else ""
        yield (
            f"removed as {how} of earlier documents: {counted(gone['documents'], 'document')}{exact},"
            f" {counted(gone['sentences'], 'sentence')}, {counted(gone['tokens'], 'token')}{kept}"
        )
    if gone := record.get("boilerplate"):
        yield (
            f"removed as boilerplate, in {gone['least_documents']:,} or more documents:"
            f" {counted(gone['sentences'], 'sentence')} ({gone['different_sentences']:,} different),"
            f" {counted(gone['tokens'], 'token')}; {counted(gone['removed_documents'], 'document')} of nothing else"
        )
        for sentence in gone["most_frequent"]:
            yield f"    in {counted(sentence['documents'], 'document')}: {_shortened(sentence['text'])}"
    if record:
        yield f"each removal is in {record['file']}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _share(part: int, total: int) -> str:
    return f"{part:,} of {total:,} ({100 * part / max(total, 1):.2f} %)"
