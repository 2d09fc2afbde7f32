-- What a stream leaves in the vault. Made when a store begins its first stream; grain is stated on each table.

CREATE TABLE IF NOT EXISTS streams (
    release_id VARCHAR NOT NULL PRIMARY KEY,
    sequence   BIGINT  NOT NULL UNIQUE,
    facts      VARCHAR NOT NULL,
    ended      BOOLEAN NOT NULL DEFAULT FALSE
);
COMMENT ON TABLE streams IS 'One row a stream that was charged.';
COMMENT ON COLUMN streams.release_id IS 'Name of the stream: its folder under releases/.';
COMMENT ON COLUMN streams.sequence IS 'Its charge: ledger.sequence.';
COMMENT ON COLUMN streams.facts IS 'JSON of the specification that was charged.';
COMMENT ON COLUMN streams.ended IS 'Whether nothing will be added any more.';

CREATE TABLE IF NOT EXISTS stream_state (
    release_id VARCHAR NOT NULL,
    part       VARCHAR NOT NULL,
    generation BIGINT  NOT NULL,
    arrays     BLOB    NOT NULL
);
COMMENT ON TABLE stream_state IS 'One row a (stream, part): exact and noisy sums, accounts, the open window.';
COMMENT ON COLUMN stream_state.release_id IS 'The stream.';
COMMENT ON COLUMN stream_state.part IS 'opened: changes with every batch; kept: changes when a step closes.';
COMMENT ON COLUMN stream_state.generation IS 'How many batches the part holds.';
COMMENT ON COLUMN stream_state.arrays IS 'NumPy arrays, uncompressed .npz.';

CREATE TABLE IF NOT EXISTS stream_files (
    release_id  VARCHAR     NOT NULL,
    number      INTEGER     NOT NULL,
    file_name   VARCHAR     NOT NULL,
    file_digest VARCHAR     NOT NULL,
    rows_taken  BIGINT      NOT NULL,
    done        BOOLEAN     NOT NULL,
    report      VARCHAR     NOT NULL,
    read_at     TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE stream_files IS 'One row a (stream, file) that arrived. For the curator only: reports lie outside the guarantee.';
COMMENT ON COLUMN stream_files.release_id IS 'The stream.';
COMMENT ON COLUMN stream_files.number IS '1, 2, ... in order of reading.';
COMMENT ON COLUMN stream_files.file_name IS 'Name of the file, without its folder.';
COMMENT ON COLUMN stream_files.file_digest IS 'Digest of its bytes under the key outside the store: a file is read once.';
COMMENT ON COLUMN stream_files.rows_taken IS 'How many of its records are in the state.';
COMMENT ON COLUMN stream_files.done IS 'Whether all are.';
COMMENT ON COLUMN stream_files.report IS 'JSON: rows in, kept, rejected by rule; or why it was not read.';
COMMENT ON COLUMN stream_files.read_at IS 'When it was begun.';

CREATE TABLE IF NOT EXISTS stream_counts (
    release_id VARCHAR NOT NULL,
    step       BIGINT  NOT NULL,
    cell       UBIGINT NOT NULL,
    slot       BIGINT  NOT NULL,
    vehicle_id INTEGER NOT NULL,
    records    BIGINT  NOT NULL,
    position   BIGINT  NOT NULL
);
COMMENT ON TABLE stream_counts IS 'One row a (stream, step, bin, vehicle) with accepted records: what every vehicle is charged for.';
COMMENT ON COLUMN stream_counts.release_id IS 'The stream.';
COMMENT ON COLUMN stream_counts.step IS 'The closed step.';
COMMENT ON COLUMN stream_counts.cell IS 'H3 index.';
COMMENT ON COLUMN stream_counts.slot IS 'Slot number, see SlotKind.';
COMMENT ON COLUMN stream_counts.vehicle_id IS 'The vehicle.';
COMMENT ON COLUMN stream_counts.records IS 'Its accepted records in the bin and step.';
COMMENT ON COLUMN stream_counts.position IS 'Number of the element among those of the bin: decides how many nodes hold it.';

CREATE TABLE IF NOT EXISTS stream_publications (
    release_id VARCHAR NOT NULL,
    number     INTEGER NOT NULL,
    sequence   BIGINT  NOT NULL,
    step       BIGINT  NOT NULL,
    facts      VARCHAR NOT NULL,
    bins       BLOB    NOT NULL
);
COMMENT ON TABLE stream_publications IS 'One row a (stream, publication): the values that were committed, drawn once.';
COMMENT ON COLUMN stream_publications.release_id IS 'The stream.';
COMMENT ON COLUMN stream_publications.number IS '1, 2, ... without gaps.';
COMMENT ON COLUMN stream_publications.sequence IS 'Its entry in the ledger: ledger.sequence.';
COMMENT ON COLUMN stream_publications.step IS 'The step that it closed.';
COMMENT ON COLUMN stream_publications.facts IS 'JSON of the publication without its arrays.';
COMMENT ON COLUMN stream_publications.bins IS 'Arrow IPC of its arrays, one row a bin.';
