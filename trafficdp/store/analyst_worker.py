"""The process in which an analyst's SQL runs: a program of its own, started by `analyst.py`.

Usage: ``python analyst_worker.py RELEASED.duckdb SECONDS [TABLE FILE]...``; an empty first argument stands
for no released file, and every FILE is read as a table before the first query. What is asked comes on
standard input, answers leave on standard output, both in frames: one letter, the length in 8 bytes, the
content.

Q  a query
T  a table to keep: its name, a zero byte, an Arrow IPC stream; its dictionary columns become ENUMs, which
   have the order of their dictionary

R  ready; or the answer to what was asked is over: empty
D  a piece of the result, an Arrow IPC stream in all
X  an error: JSON of ``kind`` (refused, wrong, data, file; memory, broken: start another process) and
   ``message``

Three walls, each enough for most attempts alone:

1. One statement at a time, and only one that reads. A SELECT can hide a COPY or INSERT in its WITH, so
   its syntax tree is looked through.
2. DuckDB: the file is attached read-only, external access is off, no extension loads, the configuration
   is locked. That is not enough: before 2.0.1 it allows what is attached, and a log beside it, to be
   written to.
3. The kernel: once the files are open, this process may open no other file (RLIMIT_NOFILE 0), write to none
   (RLIMIT_FSIZE 0), and hold only so much memory (RLIMIT_DATA), which DuckDB's own limit does not count
   in full; an alarm ends a query that no interrupt reaches.

It imports nothing of trafficdp, to start fast.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from typing import BinaryIO

if __name__ == "__main__":
    # the next two load NumPy where there is one, which takes half of their time, and need nothing of it here
    sys.modules["numpy"] = None  # type: ignore[assignment]

import duckdb
import pyarrow as pa

MEBIBYTE = 1 << 20
ENGINE_MEMORY = 1024 * MEBIBYTE
"""What DuckDB may use for tables, sorting and hashing."""
PROCESS_MEMORY = 2048 * MEBIBYTE
"""What the process may use on top of what it starts with."""
ROWS_A_BATCH = 100_000
MOST_ROWS = 5_000_000
"""Rows that a result may have."""
THREADS = 4

_TABLES = {"cells", "releases"}
_READERS = {"csv": "read_csv", "parquet": "read_parquet", "json": "read_json"}
"""What reads a file, by the end of its name."""
_PROBE = (
    "SELECT hex_id, slot, cells.status, speed_mean_status, disclosure "
    "FROM cells JOIN releases USING (release_id)"
)
_VAULT = ("vehicles", "fixes")
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\([^()]*\)\s*)?", re.IGNORECASE)
_EXCERPT = re.compile(r"\s*(LINE \d+:|Stack Trace:)")
_PREFIX = re.compile(r"^[A-Za-z ]{0,40}Error: ")

_ATTACHED = "belongs to an attached database"
"""What DuckDB, from 2.0.1 on, says by itself of a COPY to the released file or its log, with its path."""
_FILES = "a query may not use files, the network, extensions or other databases"
_READ = "a query may only read: SELECT, WITH, FROM, VALUES, PIVOT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN"


class _Refused(Exception):
    """A query that is not run. ``kind`` is as in the answers."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def open_released(path: str, files: dict[str, str] | None = None) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the released database ``path`` ("": none), without file access.

    ``files`` maps table names to files, which are loaded. Raises _Refused for a database that is not a
    released one, and for a file that is no table.
    """
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
            "memory_limit": f"{ENGINE_MEMORY // MEBIBYTE}MiB",
            "threads": str(THREADS),
        }
    )
    if path:
        _attach(connection, path)
    for name, file in (files or {}).items():
        _keep_file(connection, name, file)
    # what runs once now needs no file later
    connection.execute("SELECT random(), now(), uuid(), json('[1]') -> 0 FROM range(10)")
    keep_table(connection, "warm", _reader(connection).read_next_batch())
    connection.execute("DROP TABLE memory.main.warm")
    for setting in (
        "enable_progress_bar = false",
        f"TimeZone = '{_time_zone(connection) if path else 'UTC'}'",
        f"search_path = '{'released.main,' if path else ''}memory.main'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute("SET " + setting)
    return connection


def _attach(connection: duckdb.DuckDBPyConnection, path: str) -> None:
    """Attach the released database at ``path``; raise _Refused for any other."""
    connection.execute("ATTACH " + _text(path) + " AS released (READ_ONLY, TYPE duckdb)")
    connection.execute("USE released")
    tables = {
        name
        for (name,) in connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'released'"
        ).fetchall()
    }
    if not tables.isdisjoint(_VAULT) or not tables.issuperset(_TABLES):
        raise _Refused("data", "not a released database")
    connection.execute(_PROBE + " LIMIT 1")


def _keep_file(connection: duckdb.DuckDBPyConnection, name: str, file: str) -> None:
    """Make the table ``name`` of a file; raise _Refused where that cannot be done."""
    taken = connection.execute(
        "SELECT view_name FROM duckdb_views() UNION ALL SELECT table_name FROM duckdb_tables() "
        "UNION ALL VALUES ('records'), ('fixes')"
    )
    if (name,) in taken.fetchall():
        raise _Refused("wrong", "--with: a file may not be called like what is released; rename it")
    read = _READERS[file.rpartition(".")[2].lower()]
    try:
        connection.execute(
            "CREATE TABLE memory.main." + _name(name) + " AS FROM " + read + "(" + _text(file) + ")"
        )
    except duckdb.Error as error:
        raise _Refused("wrong", "--with: a file is no table; try a CSV with a header") from error


def keep_table(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.RecordBatch) -> None:
    """Create the table ``name`` from ``rows``, replacing one of this name; dictionaries become ENUMs."""
    kept = "TABLE memory.main." + _name(name)
    connection.register("incoming", pa.Table.from_batches([rows]))
    connection.execute("CREATE OR REPLACE " + kept + " AS FROM incoming")
    connection.unregister("incoming")
    for field in rows.schema:
        if pa.types.is_dictionary(field.type):
            values = rows.column(field.name).dictionary.to_pylist()
            kind = " TYPE ENUM(" + ", ".join(map(_text, values)) + ")"
            connection.execute("ALTER " + kept + " ALTER " + _name(field.name) + kind)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _time_zone(connection: duckdb.DuckDBPyConnection) -> str:
    """Return the city's time zone, that of the newest release; UTC where there is none that is known."""
    known = connection.execute(
        "SELECT time_zone FROM releases JOIN pg_timezone_names() ON name = time_zone "
        "ORDER BY created_at DESC, release_id DESC LIMIT 1"
    ).fetchone()
    # a name of the list has no quotes
    return "UTC" if known is None else str(known[0])


def restrict_process() -> None:
    """Give up for good this process's right to open or write files and to use unlimited memory."""
    for what, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_DATA, _data_in_use() + PROCESS_MEMORY),
    ):
        hard = resource.getrlimit(what)[1]
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(what, (limit, limit))


def _data_in_use() -> int:
    """Return the bytes that RLIMIT_DATA counts now; 0 where /proc does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            found = re.search(r"^VmData:\s*(\d+) kB", status.read(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def require_one_query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Return the one statement in ``sql``; raise _Refused unless it is one that only reads."""
    statements = connection.extract_statements(sql)
    if not statements:
        raise _Refused("wrong", "there is no statement")
    if len(statements) > 1:
        raise _Refused("wrong", "this is more than one statement: run them one at a time")
    (statement,) = statements
    kind = statement.type.name
    if kind == "EXPLAIN":
        head = _EXPLAIN.match(sql)
        if head is None:
            raise _Refused("refused", _READ)
        require_one_query(connection, sql[head.end() :])
    elif kind == "MULTI":
        # PIVOT without IN is several statements; a tree of it is not to be had
        if re.match(r"\s*(pivot|from|with|select)\b", sql, re.IGNORECASE) is None:
            raise _Refused("refused", _READ)
    elif kind != "SELECT" or _writes(connection, sql):
        raise _Refused("refused", _READ)
    return statement


def _writes(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Whether a part of the SELECT ``sql`` is an INSERT, UPDATE, DELETE, MERGE or COPY."""
    # read to its end: a result that is not keeps the connection from the next table
    trees = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    pending = [json.loads(tree) for (tree,) in trees]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            if str(part.get("type")).endswith("_QUERY_NODE"):
                return True
            pending.extend(part.values())
    return False


def answer(connection: duckdb.DuckDBPyConnection, sql: str, output: Frames) -> None:
    """Run ``sql`` on ``connection`` and send its rows to ``output``."""
    statement = require_one_query(connection, sql)
    connection.begin()
    try:
        connection.execute(statement)
        # closed, a result that was not read to its end lets go of the connection
        with _reader(connection) as reader:
            _send(reader, output)
    finally:
        # PIVOT makes a type, which goes with the transaction
        connection.rollback()


def _send(reader: pa.RecordBatchReader, output: Frames) -> None:
    schema = _unique_names(reader.schema)
    rows = 0
    with pa.ipc.new_stream(output, schema) as stream:
        for batch in reader:
            rows += batch.num_rows
            if rows > MOST_ROWS:
                raise _Refused("wrong", f"the result has too many rows: more than {MOST_ROWS}")
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _reader(connection: duckdb.DuckDBPyConnection) -> pa.RecordBatchReader:
    reader = connection.to_arrow_reader(ROWS_A_BATCH)
    if reader is None:
        raise _Refused("wrong", "this statement gives no rows")
    return reader


def _unique_names(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with every name once: a, a_1, a_2."""
    taken: set[str] = set()
    fields = []
    for field in schema:
        name, number = field.name, 0
        while name in taken:
            number += 1
            name = f"{field.name}_{number}"
        taken.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


class Frames:
    """Standard output as frames; a file object as far as Arrow needs one."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, letter: bytes, content: bytes | memoryview = b"") -> None:
        """Send one frame to standard output: its kind ``letter``, its length and ``content``."""
        self._stream.write(letter + len(content).to_bytes(8, "big"))
        self._stream.write(content)
        self._stream.flush()

    def write(self, content: bytes | pa.Buffer) -> int:
        """Send a piece of a result."""
        view = memoryview(content)
        self.send(b"D", view)
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: every frame is flushed."""

    def close(self) -> None:
        """Do nothing: the stream outlives the result."""


def error_facts(error: BaseException) -> dict[str, str]:
    """Return the kind and message of an error, in one line, without DuckDB's hints and positions."""
    if isinstance(error, _Refused):
        return {"kind": error.kind, "message": str(error)}
    if isinstance(error, (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError)):
        return {"kind": "memory", "message": "the query needs too much memory"}
    if isinstance(error, RecursionError):
        return {"kind": "wrong", "message": "the query is nested too deeply"}
    files = isinstance(error, (duckdb.PermissionException, duckdb.IOException, duckdb.HTTPException, OSError))
    if files or _ATTACHED in str(error):
        return {"kind": "file", "message": _FILES}
    foreign = not isinstance(error, duckdb.Error) or "Traceback" in str(error)
    if foreign or isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
        return {"kind": "broken", "message": "this query is beyond the engine"}
    if "max_expression_depth" in str(error):
        return error_facts(RecursionError())
    text = _PREFIX.sub("", _EXCERPT.split(str(error), maxsplit=1)[0])
    if text.startswith("Table with name"):
        records = text.split()[3].lower() in ("records", "fixes")
        return {"kind": "records" if records else "table", "message": text.split("!")[0]}
    data = isinstance(error, (duckdb.ConversionException, duckdb.OutOfRangeException))
    return {"kind": "data" if data else "wrong", "message": " ".join(text.split())[:400]}


def _why_closed(error: Exception) -> str:
    if "lock" in str(error).lower() and isinstance(error, duckdb.IOException):
        return "another program has the released database open for writing; close it and try again"
    if any(said in str(error).lower() for said in ("input/output error", "too many open files")):
        return "the machine does not let it be read; see whether the disk is sound, and run it again"
    return "this is not a released database, or it is damaged"


def serve(path: str, seconds: float, files: dict[str, str]) -> None:
    """Run the worker process: answer the queries on standard input, on standard output, until it ends.

    ``path`` is the database of what is released; ``files`` names tables and the files to read them from. A
    query that no interrupt reaches ends the process after ``seconds``.
    """
    asked, output = sys.stdin.buffer, Frames(sys.stdout.buffer)
    try:
        connection = open_released(path, files)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent hears of it
        own = isinstance(error, _Refused) and error.kind == "wrong"
        answered = error_facts(error) if own else {"kind": "closed", "message": _why_closed(error)}
        output.send(b"X", json.dumps(answered).encode())
        return
    restrict_process()
    output.send(b"R")
    while head := asked.read(9):
        content = asked.read(int.from_bytes(head[1:], "big"))
        # for what no interrupt reaches; its default is to end the process
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            if head[:1] == b"T":
                name, _, stream = content.partition(b"\0")
                keep_table(connection, name.decode(), pa.ipc.open_stream(stream).read_next_batch())
            else:
                answer(connection, content.decode("utf-8", "replace"), output)
        except BaseException as error:  # noqa: BLE001 - a query must not end the process
            output.send(b"X", json.dumps(error_facts(error)).encode())
        else:
            output.send(b"R")
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]), dict(zip(sys.argv[3::2], sys.argv[4::2], strict=True)))
