-- Sums of the personal accounts, so that what is left need not be added up from the first charge on. Made with the
-- first charge, written with every one; grain is stated on each table.

CREATE TABLE IF NOT EXISTS spending ( -- A cache, one row a (who asked, vehicle): may be emptied at any time, and is not read where charge_totals count other rows than there are.
    analyst    VARCHAR, -- Who asked: only by charges with this name in the ledger; null: by all charges.
    vehicle_id INTEGER NOT NULL, -- The vehicle that paid.
    loss_pico  BIGINT  NOT NULL -- The sum of its vehicle_charges.loss_pico.
);

CREATE TABLE IF NOT EXISTS charge_totals ( -- A cache, one row a charge, of a stream one each time that vehicles are added to it.
    sequence     BIGINT  NOT NULL, -- The charge: ledger.sequence.
    analyst      VARCHAR, -- Who asked; null: nobody by name.
    vehicles     BIGINT  NOT NULL, -- Rows of vehicle_charges.
    largest_pico BIGINT  NOT NULL -- The largest loss_pico of these.
);

CREATE TABLE IF NOT EXISTS spending_a_month ( -- A cache, one row a (calendar month, vehicle) where ceilings follow the calendar: may be emptied at any time, and is not read where it counts other charges than there are.
    time_zone  VARCHAR NOT NULL, -- Whose calendar, an IANA name: the same in all rows.
    month      VARCHAR NOT NULL, -- The month in which the charge was made: 2026-11.
    vehicle_id INTEGER NOT NULL, -- The vehicle that paid.
    loss_pico  BIGINT  NOT NULL, -- The sum of its vehicle_charges.loss_pico.
    charges    BIGINT  NOT NULL, -- How many they are.
    newest_us  BIGINT  NOT NULL -- When the newest of them was made: microseconds since 1970 UTC.
);
