#!/usr/bin/env python3
"""Makes a trace (trace.rs has the format) from the system calls of a database, behind its own buffer.

    strace -f -y -s 0 -e trace=pread64,pwrite64,pwritev -o calls.txt -p PID...
    record.py calls.txt 8192 out.tstrace PATTERN

PATTERN is a regular expression; files whose path has no match are left out (redo, say). A call on several blocks is a
request for each. Calls whose file strace could not name are counted and left out.
"""

import re
import struct
import sys

CALL = re.compile(r"(pread64|pwrite64|pwritev)\(\d+<([^>]*)>, .*, (\d+)\) += (\d+)$")


def main(calls, block_bytes, out, pattern):
    block_bytes = int(block_bytes)
    wanted, files, unnamed, requests = re.compile(pattern), {}, 0, 0
    with open(calls, errors="replace") as lines, open(out, "wb") as trace:
        trace.write(struct.pack("<8sII", b"tsmtrac1", block_bytes, 0))
        for line in lines:
            call = CALL.search(line.rstrip())
            if not call:
                unnamed += "pread64(" in line or "pwrite" in line
                continue
            name, path, offset, count = call.groups()
            if not wanted.search(path) or int(count) == 0:
                continue
            file = files.setdefault(path, len(files))
            first, end = int(offset), int(offset) + int(count)
            for block in range(first // block_bytes, -(-end // block_bytes)):
                word = block | file << 40 | (name != "pread64") << 63
                trace.write(struct.pack("<Q", word))
                requests += 1
    print(f"{out}: {requests} requests for {len(files)} files; {unnamed} calls left out", file=sys.stderr)


if len(sys.argv) != 5:
    sys.exit("usage: record.py CALLS BLOCK_BYTES OUT.tstrace PATTERN")
main(*sys.argv[1:])
