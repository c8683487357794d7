"""A log is read once, line by line, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.diagnose.log import STRETCH, read

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 79.15 GiB of which 1.25 GiB is free."


def test_a_message_that_goes_on_over_lines_is_put_together() -> None:
    lines = ["[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "[rank0]: something else\n"]
    lines += ["[rank1]: GPU 1 has a total capacity of 79.15 GiB of which 1.25 GiB is free.\n"]
    (crash,) = read(lines)
    assert (crash.rank, crash.line, crash.message.gpu) == ("1", 1, 1)


def test_prefixes_of_launchers_name_the_rank() -> None:
    prefixes = ["[rank3]: ", "[default3]:", "[1,3]<stderr>:", "3: ", "(RayWorkerWrapper rank=3, pid=9) ", "(VllmWorker_TP3 pid=17) ", "node7: [rank3]: "]
    assert [next(read([f"{prefix}{OOM.format(gpu=3)}\n"])).rank for prefix in prefixes] == ["3"] * len(prefixes)


def test_tracebacks_belong_to_their_rank() -> None:
    lines = ['[rank0]:   File "a.py", line 1, in save_model\n', '[rank1]:   File "b.py", line 2, in backward\n', f"[rank1]: {OOM.format(gpu=1)}\n"]
    assert next(read(lines)).frames == ("b.py:backward",)


def test_a_log_without_end_is_not_held() -> None:
    """What lies behind a message is looked at only as far as it may go on."""

    def lines() -> Iterator[str]:
        yield f"{OOM.format(gpu=0)}\n"
        for i in range(2 * STRETCH):
            yield f"line {i}\n"
        raise AssertionError

    assert next(read(lines())).line == 1


def test_what_lies_far_before_or_over_the_end_of_a_stretch_is_found() -> None:
    """The step of a long calm stretch, and a message whose second line is the first of the next."""
    calm = [f"step={i} loss 2.3\n" for i in range(2 * STRETCH + 500)]
    lines = [
        *calm,
        *["-\n"] * (STRETCH - 501),
        "CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        "GPU 1 has a total capacity of 79.15 GiB.\n",
        *["-\n"] * 3000,
    ]
    (crash,) = read(lines)
    assert (crash.line, crash.message.gpu) == (3 * STRETCH, 1)
    (crash,) = read([*calm, f"{OOM.format(gpu=0)}\n"])
    assert crash.step == 2 * STRETCH + 499
