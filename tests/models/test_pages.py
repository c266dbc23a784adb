"""The pages of models in examples/models run as they say, through all tools."""

import re
import shlex
from pathlib import Path

import pytest
from support.harness.seeds import chosen
from support.programs.model_pages import PAGES, page

import collir
from collir.syntax.writer import write
from collir.tools import collopt, collrun

NAMES = [
    "mlp",
    "gpt",
    "gpt3",
    "llama",
    "bert",
    "vit",
    "switch",
    "mixtral",
    "zero",
    "styles",
    "jobs",
    "words",
    "training",
    "vgg19",
    "resnet50",
]
QUICK = ["mlp", *chosen(["bert", "vit", "switch", "zero", "words"], 1, "pages")]
"""Passes take many seconds for the others."""

ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


def commands_of(name: str) -> list[list[str]]:
    """Return the commands in the comment at the head of a page."""
    text = (PAGES / f"{name}.coll").read_text(encoding="utf-8")
    head = re.match(r"(//.*\n)+", text)
    assert head
    lines = head[0].replace("\\\n//", "")
    return [shlex.split(line) for line in re.findall(r"//   (coll\w+ .*)", lines)]


@pytest.mark.turns
@pytest.mark.parametrize("name", ALL)
def test_the_commands_of_a_page(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    commands = commands_of(name)
    assert commands
    for command, *arguments in commands:
        status = {"collopt": collopt.main, "collrun": collrun.main}[command](arguments)
        printed = capsys.readouterr()
        assert status == 0, printed.out + printed.err
        assert printed.out


@pytest.mark.turns
@pytest.mark.parametrize("name", ALL)
def test_differentiated_pages_print_and_no_pass_makes_them_slower(name: str) -> None:
    module = collir.run_passes(page(name), "differentiate")
    text = write(module)
    assert write(collir.parse(text)) == text
    for done, saved, before in collir.pass_costs(module, "default").saved:
        assert saved >= -1e-9 * before, done
