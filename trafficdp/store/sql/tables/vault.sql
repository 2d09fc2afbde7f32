-- The vault: everything that must not leave the house. Grain and meaning are stated on each table.
-- Statements are run in one transaction when a store is made; a change of schema is a new schema version.

CREATE TABLE meta (
    key   VARCHAR NOT NULL PRIMARY KEY,
    value VARCHAR NOT NULL
);
COMMENT ON TABLE meta IS 'One row a fact about the store itself.';
COMMENT ON COLUMN meta.key IS 'schema_version, key_fingerprint, area_hash, store_id; loss_kind where it is not pure';
COMMENT ON COLUMN meta.value IS 'The fact, as text.';

CREATE TABLE vehicles (
    vehicle_id INTEGER NOT NULL PRIMARY KEY,
    hmac       BLOB    NOT NULL UNIQUE
);
COMMENT ON TABLE vehicles IS 'One row a privacy unit. Plates are never stored.';
COMMENT ON COLUMN vehicles.vehicle_id IS 'Number of the vehicle inside this vault, 1, 2, ... in order of first sight.';
COMMENT ON COLUMN vehicles.hmac IS 'HMAC-SHA256 of the normalised identifier under the key outside the store.';

CREATE TABLE ingests (
    ingest_id    INTEGER     NOT NULL PRIMARY KEY,
    file_name    VARCHAR     NOT NULL,
    file_digest  VARCHAR     NOT NULL UNIQUE,
    source       VARCHAR     NOT NULL,
    declaration  VARCHAR     NOT NULL,
    strict_units BOOLEAN     NOT NULL,
    report       VARCHAR     NOT NULL,
    data_version VARCHAR     NOT NULL UNIQUE,
    history      VARCHAR     NOT NULL,
    ingested_at  TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE ingests IS 'One row a file read. For the curator only: reports lie outside the guarantee.';
COMMENT ON COLUMN ingests.ingest_id IS '1, 2, ... in order of reading.';
COMMENT ON COLUMN ingests.file_name IS 'Name of the file, without its folder.';
COMMENT ON COLUMN ingests.file_digest IS 'Digest of the bytes of the file under the key outside the store: a file is read once.';
COMMENT ON COLUMN ingests.source IS 'Name of the declared source.';
COMMENT ON COLUMN ingests.declaration IS 'JSON of the source declaration the file was read under.';
COMMENT ON COLUMN ingests.strict_units IS 'Whether speeds that do not fit the declared unit would have refused the file.';
COMMENT ON COLUMN ingests.report IS 'JSON: rows in, kept, rejected by rule.';
COMMENT ON COLUMN ingests.data_version IS 'Random public name of the data up to this file.';
COMMENT ON COLUMN ingests.history IS 'SHA-256 chain over (previous history, data version, file, declaration, rows kept). Never published.';
COMMENT ON COLUMN ingests.ingested_at IS 'When the file was read.';

CREATE TABLE fixes (
    vehicle_id  INTEGER  NOT NULL,
    time_us     BIGINT   NOT NULL,
    latitude    DOUBLE   NOT NULL,
    longitude   DOUBLE   NOT NULL,
    speed_centi BIGINT   NOT NULL,
    speed_unit  VARCHAR  NOT NULL,
    derived     BOOLEAN  NOT NULL,
    ingest_id   INTEGER  NOT NULL
);
COMMENT ON TABLE fixes IS 'One row a (vehicle, instant).';
COMMENT ON COLUMN fixes.vehicle_id IS 'The vehicle: vehicles.vehicle_id.';
COMMENT ON COLUMN fixes.time_us IS 'Microseconds since 1970-01-01 UTC.';
COMMENT ON COLUMN fixes.latitude IS 'WGS84 degrees.';
COMMENT ON COLUMN fixes.longitude IS 'WGS84 degrees.';
COMMENT ON COLUMN fixes.speed_centi IS 'Speed in hundredths of speed_unit, not clipped.';
COMMENT ON COLUMN fixes.speed_unit IS 'Declared unit of the source: ms, kmh or mph.';
COMMENT ON COLUMN fixes.derived IS 'Whether the speed was derived from two fixes instead of reported.';
COMMENT ON COLUMN fixes.ingest_id IS 'The file the fix came from: data version k is all fixes with ingest_id <= k.';

CREATE TABLE contributions (
    cache_key  VARCHAR NOT NULL,
    ingest_id  INTEGER NOT NULL,
    cell       UBIGINT NOT NULL,
    slot       BIGINT  NOT NULL,
    vehicle_id INTEGER NOT NULL,
    fixes      BIGINT  NOT NULL,
    total      BIGINT  NOT NULL,
    total_of_squares BIGINT NOT NULL
);
COMMENT ON TABLE contributions IS 'A cache, one row a (cache key, bin, vehicle): may be emptied at any time.';
COMMENT ON COLUMN contributions.cache_key IS 'SHA-256 of grid, speed bound and step.';
COMMENT ON COLUMN contributions.ingest_id IS 'The newest file that is counted in: ingests.ingest_id.';
COMMENT ON COLUMN contributions.cell IS 'H3 index.';
COMMENT ON COLUMN contributions.slot IS 'Slot number, see SlotKind.';
COMMENT ON COLUMN contributions.vehicle_id IS 'The vehicle.';
COMMENT ON COLUMN contributions.fixes IS 'Number of fixes of the vehicle in the bin.';
COMMENT ON COLUMN contributions.total IS 'Sum of its speeds in steps, clipped to [0, U].';
COMMENT ON COLUMN contributions.total_of_squares IS 'Sum of squares of the same.';

CREATE TABLE imports (
    ingest_id INTEGER NOT NULL PRIMARY KEY,
    job       VARCHAR NOT NULL UNIQUE,
    cache_key VARCHAR NOT NULL
);
COMMENT ON TABLE imports IS 'One row a job of a cluster whose contributions are here; a store with one holds no records.';
COMMENT ON COLUMN imports.ingest_id IS 'Its number among what was read: ingests.ingest_id.';
COMMENT ON COLUMN imports.job IS 'Random name of the job.';
COMMENT ON COLUMN imports.cache_key IS 'SHA-256 of grid, speed bound and step that it reduced records to.';

CREATE TABLE imported (
    cache_key  VARCHAR NOT NULL,
    ingest_id  INTEGER NOT NULL,
    cell       UBIGINT NOT NULL,
    slot       BIGINT  NOT NULL,
    vehicle_id INTEGER NOT NULL,
    fixes      BIGINT  NOT NULL,
    total      BIGINT,
    total_of_squares BIGINT
);
COMMENT ON TABLE imported IS 'One row a (job, bin, vehicle): contributions that a cluster reduced. Nothing else knows them.';
COMMENT ON COLUMN imported.cache_key IS 'SHA-256 of grid, speed bound and step.';
COMMENT ON COLUMN imported.ingest_id IS 'The job: imports.ingest_id.';
COMMENT ON COLUMN imported.cell IS 'H3 index.';
COMMENT ON COLUMN imported.slot IS 'Slot number, see SlotKind.';
COMMENT ON COLUMN imported.vehicle_id IS 'The vehicle: vehicles.vehicle_id.';
COMMENT ON COLUMN imported.fixes IS 'Number of fixes of the vehicle in the bin.';
COMMENT ON COLUMN imported.total IS 'Sum of its speeds in steps, clipped to [0, U]; null where 64 bits do not hold it.';
COMMENT ON COLUMN imported.total_of_squares IS 'Sum of squares of the same; null where 64 bits do not hold it.';

CREATE TABLE ledger (
    sequence   BIGINT  NOT NULL PRIMARY KEY,
    entry      VARCHAR NOT NULL,
    head_hash  VARCHAR NOT NULL
);
COMMENT ON TABLE ledger IS 'One row an entry, append-only, chained: head_hash = SHA-256(previous head_hash + entry).';
COMMENT ON COLUMN ledger.sequence IS '1, 2, 3, ... without gaps.';
COMMENT ON COLUMN ledger.entry IS 'Canonical JSON of the entry.';
COMMENT ON COLUMN ledger.head_hash IS 'Hash of the chain up to and including this entry.';

CREATE TABLE vehicle_charges (
    sequence   BIGINT  NOT NULL,
    vehicle_id INTEGER NOT NULL,
    loss_pico  BIGINT  NOT NULL
);
COMMENT ON TABLE vehicle_charges IS 'One row a (charge, vehicle): the personal account. Never leaves the vault.';
COMMENT ON COLUMN vehicle_charges.sequence IS 'The charge: ledger.sequence.';
COMMENT ON COLUMN vehicle_charges.vehicle_id IS 'The vehicle that pays.';
COMMENT ON COLUMN vehicle_charges.loss_pico IS 'Its privacy loss in 10^-12 epsilon (rho in a store of that kind), rounded up.';

CREATE TABLE releases (
    release_id   VARCHAR NOT NULL PRIMARY KEY,
    sequence     BIGINT  NOT NULL UNIQUE,
    drawn        BOOLEAN NOT NULL DEFAULT FALSE,
    published    BOOLEAN NOT NULL DEFAULT FALSE,
    withdrawn    BOOLEAN NOT NULL DEFAULT FALSE
);
COMMENT ON TABLE releases IS 'One row a charged release: how far it is.';
COMMENT ON COLUMN releases.release_id IS 'Name of the release: its folder under releases/.';
COMMENT ON COLUMN releases.sequence IS 'Its charge: ledger.sequence.';
COMMENT ON COLUMN releases.drawn IS 'Whether its noise is committed: facts, bins and measured are in release_pieces.';
COMMENT ON COLUMN releases.published IS 'Whether its files are in place.';
COMMENT ON COLUMN releases.withdrawn IS 'Whether it was withdrawn; its charge stays.';

-- Without a key, and in rows of a kilobyte: so a checkpoint writes what is new, and never all of it again but
-- where that doubled. An index would have every release written anew with each (vault_releases.PIECE).
CREATE TABLE release_pieces (
    release_id VARCHAR NOT NULL,
    part       VARCHAR NOT NULL,
    number     INTEGER NOT NULL,
    piece      BLOB    NOT NULL
);
COMMENT ON TABLE release_pieces IS 'One row a (release, part, piece): what a release leaves, append-only.';
COMMENT ON COLUMN release_pieces.release_id IS 'The release: releases.release_id.';
COMMENT ON COLUMN release_pieces.part IS 'allocation: JSON that was frozen and charged; facts: JSON of the release without its arrays; bins: Arrow IPC of these, one row a bin; measured: the noisy answers as they were drawn, NumPy npz.';
COMMENT ON COLUMN release_pieces.number IS '1, 2, ... in the order in which pieces make the part.';
COMMENT ON COLUMN release_pieces.piece IS 'The bytes; JSON in UTF-8.';
