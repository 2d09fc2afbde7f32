-- What a stream leaves in the vault. Made when a store begins its first stream; grain is stated on each table.

CREATE TABLE IF NOT EXISTS streams ( -- One row a stream that was charged.
    release_id VARCHAR NOT NULL PRIMARY KEY, -- Name of the stream: its folder under releases/.
    sequence   BIGINT  NOT NULL UNIQUE, -- Its charge: ledger.sequence.
    facts      VARCHAR NOT NULL, -- JSON of the specification that was charged.
    ended      BOOLEAN NOT NULL DEFAULT FALSE -- Whether nothing will be added any more.
);

CREATE TABLE IF NOT EXISTS stream_state ( -- One row a (stream, part): exact and noisy sums, accounts, the open window.
    release_id VARCHAR NOT NULL, -- The stream.
    part       VARCHAR NOT NULL, -- opened: changes with every batch; kept: changes when a step closes.
    generation BIGINT  NOT NULL, -- How many batches the part holds.
    arrays     BLOB    NOT NULL -- NumPy arrays, uncompressed .npz.
);

CREATE TABLE IF NOT EXISTS stream_files ( -- One row a (stream, file) that arrived. For the curator only: reports lie outside the guarantee.
    release_id  VARCHAR     NOT NULL, -- The stream.
    number      INTEGER     NOT NULL, -- 1, 2, ... in order of reading.
    file_name   VARCHAR     NOT NULL, -- Name of the file, without its folder.
    file_digest VARCHAR     NOT NULL, -- Digest of its bytes under the key outside the store: a file is read once.
    rows_taken  BIGINT      NOT NULL, -- How many of its records are in the state.
    done        BOOLEAN     NOT NULL, -- Whether all are.
    report      VARCHAR     NOT NULL, -- JSON: rows in, kept, rejected by rule; or why it was not read.
    read_at     TIMESTAMPTZ NOT NULL -- When it was begun.
);

CREATE TABLE IF NOT EXISTS stream_counts ( -- One row a (stream, step, bin, vehicle) with accepted records: what every vehicle is charged for.
    release_id VARCHAR NOT NULL, -- The stream.
    step       BIGINT  NOT NULL, -- The closed step.
    cell       UBIGINT NOT NULL, -- H3 index.
    slot       BIGINT  NOT NULL, -- Slot number, see SlotKind.
    vehicle_id INTEGER NOT NULL, -- The vehicle.
    records    BIGINT  NOT NULL, -- Its accepted records in the bin and step.
    position   BIGINT  NOT NULL -- Number of the element among those of the bin: decides how many nodes hold it.
);

CREATE TABLE IF NOT EXISTS stream_publications ( -- One row a (stream, publication): the values that were committed, drawn once.
    release_id VARCHAR NOT NULL, -- The stream.
    number     INTEGER NOT NULL, -- 1, 2, ... without gaps.
    sequence   BIGINT  NOT NULL, -- Its entry in the ledger: ledger.sequence.
    step       BIGINT  NOT NULL, -- The step that it closed.
    facts      VARCHAR NOT NULL, -- JSON of the publication without its arrays.
    bins       BLOB    NOT NULL -- Arrow IPC of its arrays, one row a bin.
);
