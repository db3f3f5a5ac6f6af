# SPDX-License-Identifier: Apache-2.0
"""The example worker, which also writes down what it is asked: `recording_worker.py FILE RECORD_CHANGES_JSON ARGUMENTS_OF_THE_EXAMPLE…`.

FILE gets a line per Submit: the message as JSON, with its tokens as numbers.
"""

import json
import pathlib
import sys

from google.protobuf import json_format

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python_worker" / "worker.py"
asked, changes = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
sys.argv[:] = [str(EXAMPLE), *sys.argv[3:]]
sys.path.insert(0, str(EXAMPLE.parent))
classes, start = EXAMPLE.read_text().split("\nparser = ", 1)
space = {"__file__": str(EXAMPLE), "__name__": "worker"}
exec(compile(classes, str(EXAMPLE), "exec"), space)


async def take(self, message, take=space["Session"].take):
    if message.WhichOneof("body") == "submit":
        shown = json_format.MessageToDict(message.submit, preserving_proto_field_name=True)
        with asked.open("a") as file:
            file.write(json.dumps(shown) + "\n")
    await take(self, message)


def make_record(*arguments, make_record=space["make_record"]):
    record = make_record(*arguments)
    record["model"] |= changes
    return record


space["Session"].take = take
space["make_record"] = make_record
exec(compile("\nparser = " + start, str(EXAMPLE), "exec"), space)
