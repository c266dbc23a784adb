"""Plans of MSCCL++ with one fault, as a careless author or a bug in a compiler would make it."""

import copy
import random
from typing import Any

Json = dict[str, Any]


def plan_with_fault(plan: Json, rng: random.Random) -> tuple[Json, str]:
    """Return a plan with one change, and what it is."""
    made = copy.deepcopy(plan)
    while True:
        gpu = rng.choice(made["gpus"])
        block = rng.choice(gpu["threadblocks"])
        lists = [block["ops"], *(x["ops"] for x in block["ops"] if x["name"] == "pipeline")]
        ops = rng.choice([x for x in lists if x])
        at = rng.randrange(len(ops))
        if what := _change(made, gpu, block, ops, at, rng):
            return made, f"{what} in rank {gpu['id']}, block {block['id']}, operation {at}"


def _change(
    plan: Json, gpu: Json, block: Json, ops: list[Json], at: int, rng: random.Random
) -> str | None:
    """Change an operation; return what was done, or None."""
    op = ops[at]
    what = rng.choice([
        "lost", "lost", "twice", "swapped", "moved", "moved", "other chunk", "other chunk",
        "other buffer", "other channel", "channel lost", "relaxed", "other kind", "semaphore",
        "barrier", "other half", "size",
    ])  # fmt: skip
    match what:
        case "lost":
            del ops[at]
            return f"{op['name']} lost"
        case "twice":
            ops.insert(at, copy.deepcopy(op))
            return f"{op['name']} twice"
        case "swapped" | "moved":
            to = at + 1 if what == "swapped" else rng.randrange(len(ops))
            if to >= len(ops) or ops[to] == op or to == at:
                return None
            ops.insert(to, ops.pop(at))
            return f"{op['name']} moved to {to}"
        case "other chunk" | "other buffer":
            parts = [x for key in ("src_buff", "dst_buff") for x in op.get(key, ())]
            if not parts:
                return None
            part = rng.choice(parts)
            if what == "other chunk":
                old, part["index"] = part["index"], rng.randrange(part["index"] + 2)
                return f"{op['name']} with another chunk" if part["index"] != old else None
            if "buffer_id" in part:
                kind = op.get("channel_type")
                count = sum(len(x["remote_buffer_ids"]) for x in block["remote_buffer_refs"]
                            if x["access_channel_type"] == kind)  # fmt: skip
                old, part["buffer_id"] = part["buffer_id"], rng.randrange(count)
                return f"{op['name']} with another rank" if part["buffer_id"] != old else None
            if "type" in part and "pkt" not in op["name"]:
                old, part["type"] = part["type"], rng.choice("ios")
                return f"{op['name']} with another buffer" if part["type"] != old else None
        case "other channel":
            if op.get("channel_ids"):
                own = next(x for x in block["channels"] if x["channel_type"] == op["channel_type"])
                k = rng.randrange(len(op["channel_ids"]))
                to = rng.randrange(len(own["channel_ids"]))
                if to not in op["channel_ids"]:
                    op["channel_ids"][k] = to
                    return f"{op['name']} on another channel"
        case "channel lost":
            if op["name"] in ("signal", "wait", "flush") and op["channel_ids"]:
                _ = op["channel_ids"].pop(rng.randrange(len(op["channel_ids"])))
                return f"{op['name']} without a channel"
        case "relaxed":
            if op["name"] in ("signal", "wait") and op["channel_type"] == "memory":
                op["name"] = f"rlx{op['name']}"
                return f"{op['name']}"
        case "other kind":
            others = {"re": "copy", "signal": "wait", "wait": "signal", "put": "nop",
                      "rre": "nop", "pws": "put", "sem_acquire": "sem_release"}  # fmt: skip
            if other := others.get(op["name"]):
                op["name"] = other
                if other == "copy":
                    op["src_buff"] = op["src_buff"][1:2]
                return f"{op['name']} instead"
        case "semaphore":
            if gpu["semaphores"]:
                rng.choice(gpu["semaphores"])["init_value"] += 1
                return "a semaphore begins with one more"
        case "barrier":
            if op["name"] == "barrier":
                op["num_threadblocks"] += rng.choice([-1, 1])
                return "a barrier for others" if op["num_threadblocks"] > 0 else None
        case "other half":
            if plan["protocol"] == "LL":
                plan["use_double_scratch_buffer"] = False
                return "one scratch buffer"
        case _:
            parts = [x for key in ("src_buff", "dst_buff") for x in op.get(key, ())]
            if parts:
                for part in parts:
                    part["size"] += 1
                return f"{op['name']} of one chunk more"
    return None
