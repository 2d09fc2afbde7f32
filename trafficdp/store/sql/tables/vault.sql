-- The vault: everything that must not leave the house. Grain and meaning are stated on each table.
-- Statements are run in one transaction when a store is made; a change of schema is a new schema version.

CREATE TABLE meta ( -- One row a fact about the store itself.
    key   VARCHAR NOT NULL PRIMARY KEY, -- schema_version, key_fingerprint, area_hash, store_id; loss_kind where it is not pure
    value VARCHAR NOT NULL -- The fact, as text.
);

CREATE TABLE vehicles ( -- One row a privacy unit. Plates are never stored.
    vehicle_id INTEGER NOT NULL PRIMARY KEY, -- Number of the vehicle inside this vault, 1, 2, ... in order of first sight.
    hmac       BLOB    NOT NULL UNIQUE -- HMAC-SHA256 of the normalised identifier under the key outside the store.
);

CREATE TABLE ingests ( -- One row each time a file was read, also again or without a record. For the curator only: reports lie outside the guarantee.
    ingest_id    INTEGER     NOT NULL PRIMARY KEY, -- 1, 2, ... in order of reading.
    file_name    VARCHAR     NOT NULL, -- Name of the file, without its folder.
    file_digest  VARCHAR     NOT NULL, -- Digest of the bytes of the file under the key outside the store.
    source       VARCHAR     NOT NULL, -- Name of the declared source.
    declaration  VARCHAR     NOT NULL, -- JSON of the source declaration the file was read under.
    report       VARCHAR     NOT NULL, -- JSON: rows in, kept, rejected by rule.
    data_version VARCHAR     NOT NULL UNIQUE, -- Random public name of the data up to this file.
    history      VARCHAR     NOT NULL, -- SHA-256 chain over (previous history, data version, file, declaration, rows kept). Never published.
    ingested_at  TIMESTAMPTZ NOT NULL, -- When the file was read.
    undone_at    TIMESTAMPTZ -- When its records were taken back (`ingest --undo`); null where they are here.
);

CREATE TABLE fixes ( -- One row a (vehicle, instant).
    vehicle_id  INTEGER  NOT NULL, -- The vehicle: vehicles.vehicle_id.
    time_us     BIGINT   NOT NULL, -- Microseconds since 1970-01-01 UTC.
    latitude    DOUBLE   NOT NULL, -- WGS84 degrees.
    longitude   DOUBLE   NOT NULL, -- WGS84 degrees.
    speed_centi BIGINT   NOT NULL, -- Speed in hundredths of speed_unit, not clipped.
    speed_unit  VARCHAR  NOT NULL, -- Declared unit of the source: ms, kmh or mph.
    derived     BOOLEAN  NOT NULL, -- Whether the speed was derived from two fixes instead of reported.
    ingest_id   INTEGER  NOT NULL -- The file the fix came from: data version k is all fixes with ingest_id <= k.
);

CREATE TABLE contributions ( -- A cache, one row a (cache key, part, piece): may be emptied at any time.
    cache_key VARCHAR NOT NULL, -- SHA-256 of grid, speed bound and step.
    ingest_id INTEGER NOT NULL, -- The newest file that is counted in: ingests.ingest_id.
    part      VARCHAR NOT NULL, -- cell (H3 index), slot and pairs of every bin; vehicle_id, fixes, total and total_of_squares of every pair of a bin and a vehicle.
    number    INTEGER NOT NULL, -- 1, 2, ... in the order in which pieces make the part.
    type      VARCHAR NOT NULL, -- The type of the numbers of the piece, as NumPy writes it: the narrowest that holds them.
    piece     BLOB    USING COMPRESSION uncompressed NOT NULL -- The numbers, one after another. Not compressed: that took an eighth of a reduction's time, and saved as much of the file.
);

CREATE TABLE imports ( -- One row a job of a cluster whose contributions are here; a store with one holds no records.
    ingest_id INTEGER NOT NULL PRIMARY KEY, -- Its number among what was read: ingests.ingest_id.
    job       VARCHAR NOT NULL UNIQUE, -- Random name of the job.
    cache_key VARCHAR NOT NULL -- SHA-256 of grid, speed bound and step that it reduced records to.
);

CREATE TABLE imported ( -- One row a (job, bin, vehicle): contributions that a cluster reduced. Nothing else knows them.
    cache_key  VARCHAR NOT NULL, -- SHA-256 of grid, speed bound and step.
    ingest_id  INTEGER NOT NULL, -- The job: imports.ingest_id.
    cell       UBIGINT NOT NULL, -- H3 index.
    slot       BIGINT  NOT NULL, -- Slot number, see SlotKind.
    vehicle_id INTEGER NOT NULL, -- The vehicle: vehicles.vehicle_id.
    fixes      BIGINT  NOT NULL, -- Number of fixes of the vehicle in the bin.
    total      BIGINT  NOT NULL, -- Sum of its speeds in steps, clipped to [0, U]; at most 2^63 - 1.
    total_of_squares BIGINT NOT NULL -- Sum of squares of the same; at most 2^63 - 1.
);

CREATE TABLE ledger ( -- One row an entry, append-only, chained: head_hash = SHA-256(previous head_hash + entry).
    sequence   BIGINT  NOT NULL PRIMARY KEY, -- 1, 2, 3, ... without gaps.
    entry      VARCHAR NOT NULL, -- Canonical JSON of the entry.
    head_hash  VARCHAR NOT NULL -- Hash of the chain up to and including this entry.
);

CREATE TABLE vehicle_charges ( -- One row a (charge, vehicle): the personal account. Never leaves the vault.
    sequence   BIGINT  NOT NULL, -- The charge: ledger.sequence.
    vehicle_id INTEGER NOT NULL, -- The vehicle that pays.
    loss_pico  BIGINT  NOT NULL -- Its privacy loss in 10^-12 epsilon (rho in a store of that kind), rounded up.
);

CREATE TABLE releases ( -- One row a charged release: how far it is.
    release_id   VARCHAR NOT NULL PRIMARY KEY, -- Name of the release: its folder under releases/.
    sequence     BIGINT  NOT NULL UNIQUE, -- Its charge: ledger.sequence.
    drawn        BOOLEAN NOT NULL DEFAULT FALSE, -- Whether its noise is committed: facts, bins and measured are in release_pieces.
    published    BOOLEAN NOT NULL DEFAULT FALSE, -- Whether its files are in place.
    withdrawn    BOOLEAN NOT NULL DEFAULT FALSE -- Whether it was withdrawn; its charge stays.
);

-- Without a key, and in rows of a kilobyte: so a checkpoint writes what is new, and never all of it again but
-- where that doubled. An index would have every release written anew with each (vault_releases.PIECE).
CREATE TABLE release_pieces ( -- One row a (release, part, piece): what a release leaves, append-only.
    release_id VARCHAR NOT NULL, -- The release: releases.release_id.
    part       VARCHAR NOT NULL, -- allocation: JSON that was frozen and charged; facts: JSON of the release without its arrays; bins: Arrow IPC of these, one row a bin; measured: the noisy answers as they were drawn, NumPy npz.
    number     INTEGER NOT NULL, -- 1, 2, ... in the order in which pieces make the part.
    piece      BLOB    NOT NULL -- The bytes; JSON in UTF-8.
);
