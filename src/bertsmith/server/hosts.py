"""The models of a server: each with its name and its queues, and which of them can do what is asked."""

from collections.abc import Mapping

from bertsmith.library import Model
from bertsmith.server.abilities import OF_ALL
from bertsmith.server.prometheus import Metrics
from bertsmith.server.queue import WorkQueue
from bertsmith.server.refusal import RefusalError
from bertsmith.server.settings import ServerSettings


class Host:
    """A model that is served.

    Args:
        name: what it is called in requests.
        model: the model.
        settings: limits.
        metrics: what is counted.

    Attributes:
        work: what goes through the model.
        text: what only needs its tokenizer, in a thread of its own.
    """

    def __init__(self, name: str, model: Model, settings: ServerSettings, metrics: Metrics) -> None:
        self.name, self.model = name, model
        device = str(model.encoder.runtime.device)

        def queue(what: str) -> WorkQueue:
            return WorkQueue(
                model,
                what,
                batch_tokens=settings.tokens_of_batch(device),
                max_waiting=settings.max_waiting,
                max_tokens=settings.max_tokens,
                metrics=metrics,
            )

        self.work, self.text = queue(name), queue(f"{name} tokenizer")

    def can(self, ability: str) -> bool:
        """Whether the model has this ability."""
        return ability in OF_ALL or ability in self.model.abilities

    def queue_of(self, ability: str) -> WorkQueue:
        """The queue for an ability."""
        return self.text if ability == "pieces" else self.work

    def close(self) -> None:
        """Returns when nothing is computed any more."""
        self.work.close()
        self.text.close()


class Hosts:
    """All models of a server.

    Args:
        models: by name, in the order in which they are asked where a request names none.
        settings: limits.
        metrics: what is counted.
    """

    def __init__(self, models: Mapping[str, Model], settings: ServerSettings, metrics: Metrics) -> None:
        self.all = [Host(name, model, settings, metrics) for name, model in models.items()]
        self._by_name = {host.name: host for host in self.all}

    def find(self, name: str | None, *abilities: str) -> tuple[Host, str]:
        """The model that is named, or the first that can, with the first of `abilities` that it has.

        Raises:
            RefusalError: 404, there is no such model; 400, it can do something else.
        """
        if name is not None and name not in self._by_name:
            loaded = ", ".join(repr(known) for known in self._by_name)
            raise RefusalError(404, f"no model {name[:80]!r} is served here; there {_is_are(len(self.all))} {loaded}")
        for host in self.all if name is None else [self._by_name[name]]:
            for ability in abilities:
                if host.can(ability):
                    return host, ability
        wanted = " or ".join(abilities)
        if name is not None:
            raise RefusalError(400, f"model {name!r} cannot {wanted}; it can {_can(self._by_name[name])}")
        known = "; ".join(f"{host.name!r} can {_can(host)}" for host in self.all)
        raise RefusalError(400, f"no model that is served here can {wanted}; {known}")

    def close(self) -> None:
        """Returns when nothing is computed any more."""
        for host in self.all:
            host.close()


def _can(host: Host) -> str:
    return ", ".join((*host.model.abilities, *OF_ALL))


def _is_are(count: int) -> str:
    return "is" if count == 1 else "are"
