"""The class `Model`: one method for each thing that a model can do, from lists to lists.

Letters: E texts, w words in one sentence, D width of the vectors.

All methods of a model share one copy of its weights. Methods may be called from several threads.
"""

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.app.library.abilities import (
    EMBED_IDS,
    PIECES,
    find_abilities,
    no_ability,
    require_attention,
    shown_pieces,
)
from bertsmith.app.library.answers import Scored, predicted, scored_by_pairs, scored_by_vectors
from bertsmith.app.library.by_labels import BY_LABELS, LabelReader, Names
from bertsmith.app.library.inputs import (
    Text,
    checked_sentences,
    checked_text,
    checked_texts,
    examples_of,
    listed,
    located,
    pair_examples,
    require_count,
    require_ids,
    warn_cut,
)
from bertsmith.app.library.language_models import complete_texts, searching
from bertsmith.app.library.opening import Opening
from bertsmith.app.library.reading import reading_of
from bertsmith.app.library.table_answers import predicted_table, texts_of
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted, quiet
from bertsmith.base.core.requests import parameters_named
from bertsmith.base.core.tables import File, Table
from bertsmith.base.machine.runtime import require_torch
from bertsmith.inference.predictors.completion import Completion
from bertsmith.inference.predictors.perplexity import Perplexity, perplexities
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import Continuation, FilledText, PretrainedPredictor
from bertsmith.inference.predictors.request import SelectionSettings
from bertsmith.inference.predictors.streaming import OnText
from bertsmith.inference.vectors.embedder import EitherVectors, Embedder
from bertsmith.inference.vectors.token_features import TokenFeatures
from bertsmith.models.model_files.thresholds import SavedThreshold
from bertsmith.tasks.datasets.examples import QuestionExample, TextExample, empty_texts_note, is_blank, named_texts
from bertsmith.tasks.encoding.engine import PREVIOUS
from bertsmith.tasks.encoding.row_encoder import Hooked, RowEncoder
from bertsmith.tasks.metrics.vectors import crowding
from bertsmith.tasks.specs.predictions import (
    AnswerPrediction,
    ChoicePrediction,
    EntitiesPrediction,
    ExtractPrediction,
    LabelPrediction,
    MentionPrediction,
    NumberPrediction,
    TagsPrediction,
    TextPrediction,
)
from bertsmith.tasks.specs.task import GENERATION
from bertsmith.tasks.specs.tokenized import encoded_texts, tokenized
from bertsmith.text.tokenizers.tokenizer import SpecialTokens, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.app.library.attention import Attention
    from bertsmith.tasks.encoding.frozen import FrozenEncoder

Vectors = npt.NDArray[np.float32]


class Model:
    """A loaded model; created by `load`.

    Its methods raise CheckpointError if the model cannot do it, InputError for a text that is none, is empty where it
    must not be, or does not fit, and ConfigError for an option that is out of range.

    Args:
        name: the name of the model.
        predictor, pretrained: the model with a task head, or with pre-training heads.
        embedder: the encoder alone. Exactly one of the three is given, and shares its weights with everything else.
        parts: with `pretrained`, the trained parts beyond the encoder.

    Attributes:
        name: the last part of the path, or the id.
        task: a kind of task, such as "classification", see `TaskSpec.kind`; or None.
        weakness: what the scores of its own dev or test examples say against its answers; "" if nothing.
        thresholds: those that `predict` saved with it, in this precision; each has a `promise` of accuracy or coverage.
        training_texts: what its folder says of them: mean "tokens", shares of "unknown" pieces and "cut" texts.
        abilities: the supported methods; `tokens` is always supported, `pieces` by every model with a tokenizer.
        hooked: what takes hooks in front of every pass, which may stop it: the encoder and, if it writes, the decoder.
        device: where it is computed.
        attention_maps: the heads of all layers, of which `attention` shows the weights; 0 where it is not supported.
        shows_attention, shows_pieces: whether these are supported: not in an ONNX folder or an LSTM; not on words.
        labels: names of the classes or tags; empty if there are none.
        max_length: maximum tokens of a row for the head; longer texts are truncated or read in windows.
        embed_length: tokens of a text that `embed` reads; 0 for a model without an encoder.
        max_question, max_answers: tokens of a question that `answer` reads, candidates that it keeps; else 0.
        max_entities: of entities that may share words: the most for each word, words of the longest, if so by default.
        max_texts, max_written: the texts that `generate` gives for a source, the most pieces of all of them; else 0.
        reads_backward: whether `complete` continues texts at their beginning.
        pair: whether `classify` or `score` takes pairs; None if it takes both, or has neither method.
        width, is_sparse: width of the vectors of `embed`, 0 if an ONNX folder has none; whether they are sparse.
        opening: how `load` opened it, so that a copy or a pickle is loaded again; None for a model made otherwise.
    """

    def __init__(
        self,
        name: str,
        *,
        predictor: Predictor | None = None,
        pretrained: PretrainedPredictor | None = None,
        embedder: Embedder | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._predictor, self._pretrained = predictor, pretrained
        self.opening: Opening | None = None
        self._lock = threading.RLock()
        self._features: dict[str, TokenFeatures] = {}
        loaded = pretrained if predictor is None else predictor if predictor.reads_pieces else None
        if loaded is not None:
            trained = None if predictor is not None else tuple(parts)
            embedder = Embedder(loaded.engine.encoder(loaded.tokenizer, trained))
        self._by_labels: Any = None if embedder is None else LabelReader(name, predictor, embedder)
        hooked = loaded.engine if loaded is not None else None if embedder is None else embedder.encoder
        self.hooked: tuple[Hooked, ...] = () if hooked is None else hooked.hooked
        self._embedders: dict[tuple[str, bool, str | None], Embedder] = {}
        if embedder is not None:
            self._embedders[embedder.pooling, embedder.normalize, embedder.prompt] = embedder
        self._own_embedder = embedder
        spec = None if predictor is None else predictor.task.spec
        self.task: str | None = None if spec is None else spec.kind
        self.weakness: str = "" if predictor is None else predictor.weakness
        self.thresholds: list[SavedThreshold] = [] if predictor is None else predictor.thresholds
        self.training_texts: dict[str, float] = {} if predictor is None else predictor.training_texts
        self.labels: tuple[str, ...] = () if spec is None else spec.labels
        self.embed_length: int = 0 if embedder is None else embedder.max_length
        self.max_length: int = self.embed_length if spec is None else spec.settings.max_length
        of_questions = spec.settings if spec is not None and spec.kind == "span" else None
        self.max_question: int = 0 if of_questions is None else of_questions.max_question
        self.max_answers: int = 0 if of_questions is None else of_questions.n_best
        self.max_entities = (0, 0, False) if predictor is None else predictor.task.max_entities
        writes = spec.settings if spec is not None and spec.kind == GENERATION else None
        self.max_texts: int = 0 if writes is None else writes.answers
        self.max_written: int = 0 if writes is None else writes.answers * writes.max_target_length
        self.reads_backward: bool = pretrained is not None and pretrained.engine.predicts == PREVIOUS
        self.pair: bool | None = (
            spec.pair if self.task in ("classification", "regression", "reranking") and spec else None
        )
        encoder = None if embedder is None else embedder.encoder
        self.width: int = 0 if embedder is None or not embedder.has_vectors else embedder.width
        self.is_sparse: bool = encoder is not None and encoder.is_sparse
        computed = encoder or predictor  # not `self.encoder`, for which torch would be imported
        assert computed is not None, "a model"
        self.device: str = str(computed.runtime.device)
        self.attention_maps: int = 0 if encoder is None else encoder.attention_maps
        self.shows_attention: bool = self.attention_maps > 0
        self.shows_pieces: bool = encoder is not None
        self.abilities: tuple[str, ...] = find_abilities(predictor, pretrained, embedder, parts)
        self._reading = reading_of(predictor, embedder, self.abilities)

    def __repr__(self) -> str:
        about = f"{self.task}, {counted(len(self.labels), 'label')}" if self.labels else self.task or "no task head"
        return f"<Model {self.name!r}: {about}; {', '.join(self.abilities)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """How to load the model again: threads, locks and packed weights can be neither copied nor pickled."""
        if self.opening is None:
            raise ConfigError(
                expected="a model of bertsmith.load, to copy or pickle it",
                found="another one",
                fix="load it in the process that uses it",
            )
        return self.opening.again()

    @property
    def embedder(self) -> Embedder:
        """The encoder with the pooling, length and prompts of the folder."""
        if self._own_embedder is None:
            raise no_ability("embed", self.abilities, self.name, self.task)
        return self._own_embedder

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.embedder.encoder.tokenizer

    @property
    def encoder(self) -> RowEncoder:
        """The encoder below all heads; in torch, if it is installed."""
        return self.embedder.encoder.complete

    def fill(self, texts: Sequence[str], top: int = 5) -> list[FilledText]:
        """For each text, the `top` most probable pieces of each [MASK]; each mask is filled independently.

        [MASK] is understood by every model, next to its own spelling of the mask (`<mask>` for RoBERTa).
        """
        require_count(top, "top")
        return self._heads("fill").fill_texts(named_texts(checked_texts(texts)), top)

    def complete(
        self,
        texts: Sequence[str],
        top: int = 5,
        tokens: int = 0,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        on_text: OnText | None = None,
    ) -> list[Completion]:
        """For each text, the `top` most likely next pieces, and a continuation of at most `tokens` pieces.

        The continuation is greedy unless one of the following is given.

        Args:
            temperature: pieces are sampled at this temperature, by default 1; 0 is greedy.
            top_k: pieces are sampled from this many most likely ones.
            top_p: pieces are sampled from the most likely ones that together have this probability.
            seed: of the sampling.
            on_text: receives each part of the continuation while it is written, for a single text.
        """
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        return complete_texts(
            self._heads("complete"), named_texts(checked_texts(texts)), top, tokens, on_text, **sampling
        )

    def perplexity(self, texts: Sequence[str]) -> list[Perplexity]:
        """How well the model predicts each text; `Perplexity.of_all` sums them up."""
        return perplexities(self._heads("perplexity").engine, self.tokenizer, named_texts(checked_texts(texts)))

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> list[Continuation]:
        """The probability that the second text of each pair follows the first."""
        self._require("next_sentence")
        return self._judge(tokenized(pair_examples(pairs), self.tokenizer))

    def classify(self, texts: Sequence[Text], **selection: float) -> list[LabelPrediction]:
        """The label of each text or pair, with the probabilities of all labels.

        Args:
            selection: accuracy or coverage, as in `predict`, by what was saved with the model.
        """
        return self._answered("classify", texts, **selection)

    def classify_by_labels(self, texts: Sequence[str], labels: Names, **options: Any) -> list[LabelPrediction]:
        """The label of each text among labels that are only named, as by `bertsmith.classify`.

        Args:
            labels: names, or descriptions by name; the vectors of the last few sets of them are kept.
            options: multi_label, threshold and template, as there.
        """
        self._require(BY_LABELS)
        return list(self._by_labels.classify(checked_texts(texts), labels, **options))

    def score(self, texts: Sequence[Text]) -> list[NumberPrediction]:
        """The predicted number of each text or pair; raises the same errors as `classify`."""
        return self._answered("score", texts)

    def choose(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[ChoicePrediction]:
        """The best ending for each context."""
        return self._answered("choose", questions)

    def tag(
        self, texts: Sequence[str | Sequence[str]], labels: Names | None = None, **options: Any
    ) -> list[TagsPrediction] | list[EntitiesPrediction]:
        """The tags and entities of each text, or its entities alone; for plain texts, with character offsets.

        Args:
            texts: plain texts, which may be empty and are split into words at white space, around punctuation and
                around Chinese characters; or lists of words.
            labels: of a model for entities by name, those to look for, or descriptions by name.
            options: of a model of spans, threshold and overlap, as in `bertsmith predict`.
        """
        return self._answered("tag", texts, labels=labels, **options)

    def answer(self, questions: Sequence[tuple[str, str]], n_best: int = 1) -> list[AnswerPrediction]:
        """The answer to each question from its context, which may have any length.

        Args:
            questions: pairs of question and context. A question of more than `max_question` tokens is truncated at its
                end, with a `CutWarning`.
            n_best: number of candidates to return, at most as many as in the model's settings.
        """
        self._require("answer")
        require_count(n_best, "n_best")
        return self._answer(examples_of("answer", questions), n_best)

    def generate(self, texts: Sequence[str], **search: Any) -> list[TextPrediction]:
        """The text that the model writes for each source, such as its summary, with its score.

        A source of more than `max_length` tokens is truncated, with a `CutWarning`.

        Args:
            search: beam, answers, length_penalty, no_repeat_ngram, min_target_length, max_target_length; by default
                those of the training. on_text receives each part of a single text, with beam 1 and answers 1.
        """
        return self._answered("generate", texts, **search)

    def extract(self, texts: Sequence[str | Sequence[str]], **options: Any) -> list[ExtractPrediction]:
        """The sentences of each text that say most of it, in its order, with their places and scores.

        Args:
            texts: texts of any length, or lists of sentences, whose places are those in these joined with spaces.
            options: sentences, no_repeat_ngram; by default those of the training.
        """
        return self._answered("extract", texts, **options)

    def resolve(self, pronouns: Sequence[Mapping[str, Any]]) -> list[MentionPrediction]:
        """What each pronoun refers to: one of its candidates, or none of them.

        Of a text of more than `max_length` tokens, the model reads the part with the mentions, with a `CutWarning`.

        Args:
            pronouns: records `{"text": ..., "pronoun": (start, end), "candidates": [(start, end), ...]}`, with spans of
                characters.

        Raises:
            InputError: a span is not in the text, or the mentions are too far apart for one row.
        """
        return self._answered("resolve", pronouns)

    @parameters_named(dataclasses.fields(SelectionSettings))
    def predict(
        self,
        data: File,
        *,
        calibrate: File | None = None,
        accuracy: float | None = None,
        coverage: float | None = None,
        save_threshold: bool = False,
        **columns: Any,
    ) -> Any:
        """The answers of the task head to a table: the columns prediction and, if there is one, probability.

        They are a table of the same library with the rows of `data`, and with the index of a frame of pandas; for a
        list of dicts or a path, a list of dicts. The prediction of a row without text is missing.

        Args:
            data: a file of the model's task or such a table in memory; labels are not read.
            calibrate: labelled texts that the model was not trained on, a file or table [what was saved].
            accuracy: the least certain texts get no answer, None, so that this share of the other answers is right.
            coverage: an answer is a list of labels, so that this share of the lists contains the right one.
            save_threshold: whether the threshold is saved in the model folder, with what gives one for other shares.
            columns: `text_column` and the like, as in `finetune`.
        """
        if self._predictor is None:
            raise no_ability("predict", self.abilities, self.name, self.task)
        settings = SelectionSettings(
            calibrate=calibrate, accuracy=accuracy, coverage=coverage, save_threshold=save_threshold
        )
        return predicted_table(self._predictor, data, settings, **columns)

    def rerank(self, query: str, passages: Sequence[str], *, raw_scores: bool = False) -> list[float]:
        """How well each passage answers the query; higher is better.

        A model of pairs reads query and passage together (see `PairScorer`, also for `raw_scores`), one of late
        interaction compares their tokens (see `max_sim`), others use the cosine of their vectors. Long texts are
        truncated, with a `CutWarning`.
        """
        self._require("rerank")
        checked_text(query, "the query")
        pairs = [(query, passage) for passage in listed(passages, "texts")]
        return [score for score, _ in self._score(self.read(pairs, "rerank")[0], query, raw_scores)] if pairs else []

    def remark(self, items: Sequence[Any], vectors: Sequence[Vectors | None] = ()) -> str:
        """A sentence to read with the answers to some items of `read`, as the commands print it; "" if there is none.

        `vectors` are those of the passages that were compared, by `compute`.
        """
        if known := [vector for vector in vectors if vector is not None]:
            return crowding(np.stack(known))
        return empty_texts_note(sum(map(is_blank, items)), of_words=not self.shows_pieces)

    def embed(
        self,
        texts: Sequence[str] | Table,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
    ) -> EitherVectors:
        """One vector per text, float32 [E, D]; of a model of sparse vectors a matrix of scipy, [E, V].

        A text of more than `embed_length` tokens is truncated at its end, with a `CutWarning`; `tokens(texts, "embed")`
        returns the number of tokens of each text.

        Args:
            texts: a list or column of texts, or a table in memory with one column of texts.
            pooling: mean, max, cls, pooler or another of `embed --pooling`; None uses the folder's setting, else mean.
            normalize: divide each vector by its length; None uses the folder's setting, else False.
            prompt: the name of one of the folder's prompts, such as "query", or "none"; None uses its default.

        Raises:
            ConfigError: the pooling or the prompt is unknown.
            CheckpointError: `pooling` is pooler, and the pooler was never trained.
        """
        vectors, cut = self._embedder_of(pooling, normalize, prompt).embed_either(checked_texts(texts_of(texts)))
        warn_cut(cut.tolist())
        return vectors

    def embed_ids(self, rows: Sequence[Sequence[int]], *, prompt: str | None = None) -> Vectors:
        """One vector for the pieces of each text, given as ids without [CLS] and [SEP], float32 [E, D].

        Args:
            rows: ids of this model's vocabulary.
            prompt: see `embed`.

        Raises:
            InputError: an id is not in the vocabulary, a text has too many pieces, or a prompt, which is text, would
                have to precede them.
        """
        self.check_ids(rows, prompt=prompt)
        return self._embed(self.read(rows, EMBED_IDS)[0], prompt)

    def check_ids(self, rows: Sequence[Sequence[int]], *, prompt: str | None = None) -> None:
        """Returns if `embed_ids` takes these rows; raises the same errors."""
        embedder = self._embedder_of(None, None, prompt)
        most = self.embed_length - self.tokenizer.template.num_special(1)
        require_ids(rows, len(self.tokenizer.vocabulary), most, embedder.prompt)

    def features(self, sentences: Sequence[Sequence[str]], layers: str = "last") -> "list[Tensor]":
        """One vector per word, however many pieces it has: a tensor float32 [w, D] for each sentence.

        Args:
            sentences: lists of words.
            layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_choice`.

        Raises:
            ConfigError: the layers are unknown.
        """
        checked = checked_sentences(sentences)
        require_torch(self.name)
        with self._lock:
            features = TokenFeatures(self.encoder, layers=layers)  # refuses what cannot be a key
            features = self._features.setdefault(layers, features)
        with quiet():
            return features.word_vectors(checked)

    def attention(self, text: str, pair: str | None = None) -> "Attention":
        """The attention weights between the tokens of a text or pair, for every head of every layer.

        Args:
            text: at most 128 tokens, [CLS] and [SEP] included. [MASK] is parsed as in `pieces`.
            pair: a second text, in the same row.

        Raises:
            InputError: a text is empty, or there are too many tokens.
            CheckpointError: the model is an ONNX folder, or has no attention.
        """
        require_attention(self.embedder.encoder, self.name)
        checked_text(text, "the text")
        if pair is not None:
            checked_text(pair, "the pair")
        return self._attention(self.read([text if pair is None else (text, pair)], "attention")[0][0])

    def read(
        self, items: Sequence[Any], ability: str, *, prompt: str | None = None, question: Any = None
    ) -> tuple[Sequence[Any], list[list[int]]]:
        """The items of a request with their pieces, and the tokens of each of their rows, before truncation.

        The items are checked. `compute` takes them: what is counted is what is computed.

        Args:
            items: one for each answer; for `rerank`, pairs with the same query.
            ability: the method; "pieces" for the tokenizer alone, "embed_ids" for ids that `check_ids` let pass.
            prompt: for vectors, as in `embed`.
            question: for `classify_by_labels`, a `by_labels.Question`; for `tag`, labels with descriptions, or None.

        Raises:
            BertsmithError: the model cannot do this, or an item is none of this method.
        """
        if ability == BY_LABELS and question is not None:
            return self._by_labels.read(items, question)  # type: ignore[no-any-return]
        return self._reading.read(items, ability, prompt, question)

    def compute(self, ability: str, items: Sequence[Any], **options: Any) -> Sequence[Any]:
        """The answers of a method to items that `read` has read.

        Args:
            ability: as in `read`. For `rerank`, each score comes with the normalized vector of its passage, or with
                None where a model reads pairs.
            items: of one request, or of several with the same options, which errors count together.
            options: of the method.
        """
        if ability == PIECES:
            return [shown_pieces(item, self.tokenizer.vocabulary) for item in items]
        if ability in ("embed", EMBED_IDS):
            return list(self._embed(items, **options))
        if ability == "attention":
            return [self._attention(item) for item in items]
        items = located(items)
        computes: dict[str, Callable[..., Sequence[Any]]] = {
            "rerank": self._score,
            "answer": self._answer,
            "next_sentence": self._judge,
            BY_LABELS: getattr(self._by_labels, "compute", self._predict),
        }
        if self._pretrained is not None:
            computes |= {
                "fill": self._pretrained.fill_texts,
                "complete": functools.partial(complete_texts, self._pretrained),
                "perplexity": functools.partial(perplexities, self._pretrained.engine, self.tokenizer),
            }
        compute: Callable[..., Sequence[Any]] = computes.get(ability, self._predict)
        return compute(items, **options)

    def tokens(
        self, texts: Sequence[Text | Sequence[str]], ability: str | None = None, *, prompt: str | None = None
    ) -> list[int]:
        """The number of tokens of each text or pair before truncation, [CLS] and [SEP] included.

        Args:
            texts: texts or pairs of texts; for `tag` and `features`, whatever these methods accept.
            ability: the method to count for; None is the first of `abilities`. Special pieces in a text are parsed as
                that method does (see `reads_specials`), and for vectors the model's prompt counts too. "pieces" counts
                the output of `pieces`.
            prompt: for vectors, as in `embed`.

        Raises:
            CheckpointError: the model cannot do this.
            ConfigError: the prompt is unknown.
        """
        ability = self.abilities[0] if ability is None else ability
        if ability != PIECES:
            self._require(ability)
        return self._reading.tokens(texts, ability, prompt)

    def reads_specials(self, ability: str = PIECES) -> SpecialTokens:
        """Whether a method parses `[MASK]` and other special pieces as special tokens, not as ordinary characters.

        "own": only as the vocabulary spells them. `pieces` shows what `fill` reads, or what vectors are made of.
        """
        return self._reading.specials(ability)

    def reads_at_most(self, ability: str) -> int | None:
        """The maximum tokens that a method reads of a text or pair; None if it reads everything, in windows."""
        return self._reading.at_most(ability)

    def pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text, without [CLS] and [SEP]."""
        return [self.tokenizer.tokenize(text, special_tokens=self.reads_specials()) for text in checked_texts(texts)]

    def _require(self, ability: str) -> None:
        if ability not in self.abilities:
            raise no_ability(ability, self.abilities, self.name, self.task)

    def _heads(self, ability: str) -> PretrainedPredictor:
        self._require(ability)
        return cast("PretrainedPredictor", self._pretrained)

    def _embedder_of(self, pooling: str | None, normalize: bool | None, prompt: str | None) -> Embedder:
        with self._lock:
            varied = self.embedder.varied(pooling=pooling, normalize=normalize, prompt=prompt)
            return self._embedders.setdefault((varied.pooling, bool(varied.normalize), varied.prompt), varied)

    def _answered(self, ability: str, items: Sequence[Any], **settings: Any) -> list[Any]:
        self._require(ability)
        return self._predict(examples_of(ability, items), **settings)

    def _predict(self, examples: Sequence[Any], **settings: Any) -> list[Any]:
        assert self._predictor is not None
        return predicted(searching(self._predictor, **settings) if settings else self._predictor, examples)

    def _answer(self, questions: Sequence[QuestionExample], n_best: int) -> list[AnswerPrediction]:
        return [dataclasses.replace(answer, n_best=answer.n_best[:n_best]) for answer in self._predict(questions)]

    def _judge(self, pairs: Sequence[TextExample]) -> list[Continuation]:
        assert self._pretrained is not None
        answers = self._pretrained.judge_pairs(pairs)
        warn_cut(answer.cut_tokens for answer in answers)
        return answers

    def _embed(self, texts: Sequence[TextExample], prompt: str | None = None, normalize: bool | None = None) -> Vectors:
        return self._embedder_of(None, normalize, prompt).embed_encoded(encoded_texts(texts, self.tokenizer))[0]

    def _score(self, pairs: Sequence[TextExample], query: str = "", raw_scores: bool = False) -> Scored:
        if self._predictor is not None:
            return scored_by_pairs(self._predictor, pairs, raw=raw_scores)
        return scored_by_vectors(self._embedder_of(None, self.embedder.compares_units or None, None), pairs)

    def _attention(self, example: TextExample) -> "Attention":
        from bertsmith.app.library.attention import attention_of

        return attention_of(cast("FrozenEncoder", self.encoder), example)
