-- By what published releases are found. Made with the first release; grain is stated on the table.

CREATE TABLE IF NOT EXISTS release_index ( -- One row a published release, written with its publication. What it finds is looked at again.
    release_id     VARCHAR NOT NULL, -- The release: releases.release_id.
    data_version   VARCHAR NOT NULL, -- Random public name of its data: ingests.data_version.
    numbers_sha256 VARCHAR NOT NULL, -- SHA-256 of all that decides what its numbers are, but the data.
    area_sha256    VARCHAR NOT NULL, -- SHA-256 of the study area.
    of_question    BOOLEAN NOT NULL, -- Whether it answers a priced question.
    of_everything  BOOLEAN NOT NULL -- Whether it is of all records of study area and period.
);
