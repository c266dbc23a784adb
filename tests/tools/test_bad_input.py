"""Tests of input that is no program, however large: a diagnostic, status 1, in bounded time."""

import io
import random
import string
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import chosen, some

from collir.ir.diagnostics import MAX_MESSAGE
from collir.tools import collopt

SIZE = 10_000_000
HEAD = "machine @a2 = @gcp_a2\nmesh @m on @a2 { data = node:2 * gpu:16 }\n"
FUNCTION = """\
func @f{0}(%x: f32[32] partial(sum: data)) -> f32[32] on @m {{
  %y = all_reduce %x over data
  return %y
}}
"""


def run_bytes(folder: Path, data: bytes, suffix: str = ".coll") -> tuple[int, str]:
    """Return the exit status and stderr of collopt on a file, in this process."""
    path = folder / f"input{suffix}"
    path.write_bytes(data)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = collopt.main([str(path)])
    assert out.getvalue() == "" or status == 0
    return status, err.getvalue().replace(f"{folder}/", "")


def rejected(folder: Path, text: str, suffix: str = ".coll") -> str:
    """Return the stderr of a run that refuses its input."""
    status, err = run_bytes(folder, text.encode(), suffix)
    assert status == 1, err
    assert len(err) < 25 * MAX_MESSAGE
    return err


def printable(count: int) -> bytes:
    """Return random printable characters."""
    return "".join(random.Random(1).choices(string.printable, k=count)).encode()


GARBAGE = {
    "random bytes": lambda: random.Random(1).randbytes(SIZE),
    "printable": lambda: printable(SIZE),
    "one line": lambda: b"a" * SIZE,
    "parentheses": lambda: b"(" * SIZE,
    "brackets": lambda: b"[" * SIZE,
    "NUL": lambda: bytes(SIZE),
    "digits": lambda: b"machine @a { level n[" + b"9" * SIZE + b"] { } }",
    "unclosed string": lambda: b'machine @a = @b from "' + b"x" * SIZE,
    "syntax errors": lambda: (HEAD + "func @f() on @m { retrun }\n" * (SIZE // 27)).encode(),
}


CALLS = """
import sys
from collir.tools.collopt import main
for path in sys.argv[1:]:
    print(main([path]), flush=True)
    print("---", file=sys.stderr)
"""


@pytest.mark.turns
@pytest.mark.parametrize("suffix", some([".coll", ".mlir"], 1))
def test_ten_megabytes_of_garbage_end_soon(tmp_path: Path, suffix: str) -> None:
    """In a process of their own, since a mistake may crash it."""
    kinds = chosen(list(GARBAGE), 5, suffix)
    paths = [tmp_path / f"{kind}{suffix}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        path.write_bytes(GARBAGE[kind]())
    done = subprocess.run(
        [sys.executable, "-c", CALLS, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=True,
    )
    assert done.stdout.split() == ["1"] * len(paths)
    *errors, rest = done.stderr.split("---\n")
    assert (len(errors), rest) == (len(paths), "")
    for error in errors:
        assert "error: " in error
        assert "Traceback" not in error
        assert "internal error" not in error


@pytest.mark.slow
def test_ten_megabytes_that_look_right_end(tmp_path: Path) -> None:
    functions = "".join(FUNCTION.format(i) for i in range(SIZE // 105))
    err = rejected(tmp_path, HEAD + functions + "func @g() on @n { return }\n")
    assert err.startswith("input.coll:380955:14: error: there is no mesh @n\n")


def test_a_syntax_error_behind_many_functions_is_at_its_own_line(tmp_path: Path) -> None:
    functions = "".join(FUNCTION.format(i) for i in range(1000))
    err = rejected(tmp_path, HEAD + functions + "func @g( on @m { return }\n")
    assert err.startswith("input.coll:4003:13: error: `@m` is not possible here")


def test_all_errors_of_many_functions_are_counted(tmp_path: Path) -> None:
    functions = "".join(FUNCTION.format(i) for i in range(1000)).replace("partial(sum: data)", "")
    err = rejected(tmp_path, HEAD + functions)
    assert err.endswith("\n980 more errors are not shown\n")


def test_unknown_names_by_the_thousand_are_not_all_compared(tmp_path: Path) -> None:
    steps = "".join(f"  %y{i} = scale %z{i} by 2\n" for i in range(10_000))
    err = rejected(tmp_path, f"{HEAD}func @f(%x: f32[32]) on @m {{\n{steps}  return\n}}\n")
    assert err.endswith("\n9980 more errors are not shown\n")


ABSURD = {
    "axes": (
        "machine @a { level n[2] { port = 1 B/s, latency = 1 s } }\n"
        f"mesh @m on @a {{ {', '.join(f'a{i} = n:1' for i in range(10_000))} }}\n",
        "the factors of mesh @m on level 'n' multiply to 1, but the level has 2 children",
    ),
    "factors": (
        "machine @a { level n[2] { port = 1 B/s, latency = 1 s } }\n"
        f"mesh @m on @a {{ {', '.join(f'a{i} = n:{10**18}' for i in range(10_000))} }}\n",
        "the factors of mesh @m on level 'n' multiply to 2^64 or more, but",
    ),
    "sizes of axes": (
        "machine @a { level n[2] { port = 1 B/s, latency = 1 s } }\n"
        f"mesh @m on @a {{ {', '.join(f'a{i} = {10**18}' for i in range(10_000))} }}\n",
        "the axes of mesh @m multiply to 2^64 or more, but machine @a has 2 devices",
    ),
    "levels": (
        "machine @a {\n"
        + "".join(f"level n{i}[{10**18}] {{ port = 1 B/s, latency = 1 s }}\n" for i in range(5000))
        + "}\n",
        "machine @a has 2^64 or more devices; at most 2^31 - 1 are possible",
    ),
    "dimensions": (
        f"{HEAD}func @f(%x: f32[{', '.join('1' * 10_000)}]) on @m {{ return }}\n",
        "the tensor has 10000 dimensions; at most 32 are possible",
    ),
    "dimensions of a reshape": (
        f"{HEAD}func @f(%x: f32[]) on @m {{ %y = reshape %x to [{', '.join('1' * 10_000)}] "
        "return }\n",
        "reshape makes 10000 dimensions; at most 32 are possible",
    ),
    "splits": (
        f"{HEAD}func @f(%x0: f32[1]) on @m {{\n"
        + "".join(f"  %x{i + 1} = split %x{i} dim 0 into [1, 1]\n" for i in range(40))
        + "  return\n}\n",
        "the tensor has 33 dimensions; at most 32 are possible",
    ),
    "sub-axes": (
        f"{HEAD}func @f(%x: f32[]) on @m {{ %y = all_reduce %x over "
        f"{', '.join(['data'] * 10_000)} return }}\n",
        "all_reduce names sub-axis data.node twice",
    ),
    "order": (
        f"{HEAD}func @f(%x: f32[]) on @m {{ %y = transpose %x order "
        f"[{', '.join('0' * 10_000)}] return }}\n",
        " ... ",
    ),
    "name": (f"machine @{'a' * 100_000} {{ }}\n", f"{'a' * 900} has no levels"),
    "exponent": (
        f"machine @a {{ level n[2] {{ port = 1e{'9' * 10_000} B/s, latency = 1 s }} }}\n",
        "the number is too large for a double",
    ),
    "fraction": (
        f"machine @a {{ level n[2] {{ port = 0.{'0' * 10_000}1 B/s, latency = 1 s }} }}\n",
        "the number is too small for a double",
    ),
}


@pytest.mark.parametrize("kind", some(list(ABSURD), 6))
def test_absurdly_many_of_one_thing_are_refused(tmp_path: Path, kind: str) -> None:
    text, message = ABSURD[kind]
    assert message in rejected(tmp_path, text)


def test_files_that_include_each_other_twice_are_read_once(tmp_path: Path) -> None:
    """Thirty files that each take two machines from the next would be read 2^30 times."""
    for i in range(30):
        machines = (f'machine @{name} = @{name} from "{i + 1}.coll"\n' for name in "ab")
        (tmp_path / f"{i}.coll").write_text("".join(machines))
    level = "{ level n[2] { port = 1 B/s, latency = 1 s } }"
    (tmp_path / "30.coll").write_text(f"machine @a {level}\nmachine @b {level}\n")
    text = 'machine @a = @a from "0.coll"\nmesh @m on @a { data = 3 }\n'
    assert "multiply to 3, but machine @a has 2 devices" in rejected(tmp_path, text)


def test_deeply_nested_files_are_refused(tmp_path: Path) -> None:
    for i in range(1000):
        (tmp_path / f"{i}.coll").write_text(f'machine @a = @a from "{i + 1}.coll"\n')
    err = rejected(tmp_path, 'machine @a = @a from "0.coll"\n')
    assert "nested too deeply" in err


def test_of_a_long_line_the_part_around_the_caret_is_shown(tmp_path: Path) -> None:
    meshes = (f"mesh @m{i} on @a2 {{ data = node:2 * gpu:16 }} " for i in range(1000))
    text = (
        HEAD.replace("\n", " ") + "".join(meshes) + "mesh @n on @nowhere { data = 1 } // The end."
    )
    err = rejected(tmp_path, text)
    line, caret = err.splitlines()[-2:]
    assert len(line) <= 160
    assert line[caret.index("^") :].startswith("@nowhere")
    assert caret.count("~") == len("nowhere")


@pytest.mark.parametrize(
    "text", ["", "\n" * 1000, "// Nothing.\n", "\ufeff// A byte order mark.\n"]
)
def test_a_text_without_declarations_is_an_empty_module(tmp_path: Path, text: str) -> None:
    assert run_bytes(tmp_path, text.encode()) == (0, "")


def test_no_line_ends_are_needed_nor_the_last_one(tmp_path: Path) -> None:
    text = (HEAD + FUNCTION.format(0)).replace("\n", " ").strip()
    assert run_bytes(tmp_path, text.encode()) == (0, "")
