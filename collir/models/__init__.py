"""Training steps of families of models, for any machine, and the sizes of their models.

A page is a program in ``.coll``: the computation of one device, with types that say which dimension
each axis divides. ``collir new --model NAME`` writes it for a cluster, at the sizes of a model.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_HEAD = re.compile(r"^machine @cluster = .*\nmesh @m on @cluster .*\n", re.MULTILINE)
_DEFAULTS = re.compile(r"(?<=\nfunc @)(?:loss|step)\(([^)]*)\)")


@dataclass(frozen=True)
class ShippedModel:
    """A model of a family.

    Attributes:
        page: the name of the page of its family.
        sizes: those that differ from the defaults of the page, from its published configuration.
    """

    page: str
    sizes: Mapping[str, int]

    @cached_property
    def text(self) -> str:
        """The page of its family, as it is shipped."""
        return (Path(__file__).parent / f"{self.page}.coll").read_text(encoding="utf-8")

    @cached_property
    def defaults(self) -> dict[str, int]:
        """All sizes of the page, with those of the model."""
        *_, listed = _DEFAULTS.findall(self.text)
        found = {name: int(size) for name, size in re.findall(r"(\w+) = (\d+)", listed)}
        return found | dict(self.sizes)

    @property
    def names(self) -> list[str]:
        """The names of its mesh, records and functions, which the machine cannot have."""
        return re.findall(r"^(?:mesh|record|func) @(\w+)", self.text, re.MULTILINE)

    @property
    def has_model_axis(self) -> bool:
        """True if types of the page name an axis ``model`` beside ``data``."""
        return "@model" in self.text

    def divides(self, data: int, model: int) -> bool:
        """Return whether axes of these sizes divide what they have to."""
        sizes = self.defaults
        over_data = [sizes[x] for x in ("experts",) if x in sizes]
        names = ("heads", "kv", "inner", "dense", "vocab")
        over_model = [sizes[x] for x in names if x in sizes]
        return not any(x % data for x in over_data) and not any(x % model for x in over_model)

    def program(self, machine: str, name: str, axes: str, devices: int, file: str) -> str:
        """Return the program for a machine.

        Args:
            machine: the declaration of the machine, which is called ``name``.
            axes: the axes of the mesh, with their places.
            devices: the number of its devices, each of which gets 8 rows of a batch.
            file: what the commands in the first lines call the program.
        """
        sizes = self.defaults | {"batch": 8 * devices}
        if "experts" in sizes:
            share = sizes["seq"] * sizes["chosen"] / sizes["experts"]
            sizes["places"] = min(sizes["seq"], math.ceil(1.25 * share))

        def sized(match: re.Match[str]) -> str:
            changed = re.sub(r"(\w+) = \d+", lambda m: f"{m[1]} = {sizes[m[1]]}", match[1])
            return match[0].replace(match[1], changed)

        text = self.text.replace(f"{self.page}.coll", file)
        text = text.replace("--devices 8", f"--devices {devices}")
        mesh = f"mesh @m on @{name} {{ {axes} }}\n"
        text = _HEAD.sub(lambda _: f"{machine.rstrip()}\n\n{mesh}", text, count=1)
        return _DEFAULTS.sub(sized, text)


MODELS = {
    "llama-3-8b": ShippedModel("llama", {}),
    "llama-3-70b": ShippedModel(
        "llama", {"hidden": 8192, "heads": 64, "inner": 28672, "layers": 80}
    ),
    "llama-3-405b": ShippedModel(
        "llama", {"hidden": 16384, "heads": 128, "inner": 53248, "layers": 126}
    ),
    "mistral-7b": ShippedModel("llama", {"vocab": 32000, "window": 4096, "base": 10000}),
    "qwen3-8b": ShippedModel("qwen3", {}),
    "qwen3-32b": ShippedModel("qwen3", {"hidden": 5120, "heads": 64, "inner": 25600, "layers": 64}),
    "mixtral-8x7b": ShippedModel("mixtral", {}),
    "qwen3-30b-a3b": ShippedModel("qwen3_moe", {}),
    "qwen3-235b-a22b": ShippedModel(
        "qwen3_moe", {"hidden": 4096, "heads": 64, "inner": 1536, "layers": 94}
    ),
    "deepseek-v3": ShippedModel("deepseek_v3", {}),
    "gpt-oss-20b": ShippedModel("gpt_oss", {}),
    "gpt-oss-120b": ShippedModel("gpt_oss", {"experts": 128, "pairs": 18}),
    "gemma-3-12b": ShippedModel("gemma3", {}),
    "bert-base": ShippedModel("bert", {}),
    "bert-large": ShippedModel("bert", {"hidden": 1024, "heads": 16, "layers": 24}),
    "vit-base": ShippedModel("vit", {}),
    "vit-large": ShippedModel("vit", {"hidden": 1024, "heads": 16, "layers": 24}),
    "resnet-50": ShippedModel("resnet50", {}),
}
"""The models that ``collir new --model`` knows."""
