-- Scheduled traffic between neighbouring stops, from the tables of a static GTFS.
-- In: the variables `folder`, where `timetable.py` unpacked the files, `first` and `last`, days of a period.
-- Out: `between_stops`, one row a (pair of stops, day of the week, hour); `pair`, one row a pair of stops;
-- `unread`, one row: what cannot be read.

CREATE MACRO written(name) AS TABLE
SELECT * FROM read_csv(
    getvariable('folder') || '/' || name,
    header = true, all_varchar = true, encoding = 'latin-1', delim = ',', quote = '"', escape = '"',
    null_padding = true, strict_mode = false
);

CREATE MACRO day_of(digits) AS TRY_CAST(try_strptime(trim(digits), '%Y%m%d') AS DATE);

CREATE MACRO seconds_of(clock) AS
    CASE WHEN regexp_full_match(trim(clock), '[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}') THEN
        3600 * CAST(split_part(trim(clock), ':', 1) AS INTEGER)
        + 60 * CAST(split_part(trim(clock), ':', 2) AS INTEGER)
        + CAST(split_part(trim(clock), ':', 3) AS INTEGER)
    END;

CREATE TABLE regular AS
SELECT service_id, day_of(start_date) AS begins, day_of(end_date) AS ends,
    [trim(each) = '1' FOR each IN [monday, tuesday, wednesday, thursday, friday, saturday, sunday]] AS runs
FROM written('calendar.txt');

CREATE TABLE exception AS
SELECT service_id, day_of(date) AS day, trim(exception_type) AS kind
FROM written('calendar_dates.txt');

CREATE TABLE feed_day AS
SELECT CAST(unnest(generate_series(begins, ends, INTERVAL 1 DAY)) AS DATE) AS day
FROM (
    SELECT min(day) AS begins, max(day) AS ends
    FROM (
        SELECT begins AS day FROM regular UNION ALL SELECT ends FROM regular
        UNION ALL SELECT day FROM exception WHERE kind = '1'
    ) AS ends
);

CREATE TABLE active AS
SELECT service_id, day FROM (
    SELECT service_id, day FROM regular JOIN feed_day ON day BETWEEN begins AND ends
    WHERE runs[isodow(day)]
    UNION
    SELECT service_id, day FROM exception WHERE kind = '1'
) AS planned
ANTI JOIN (SELECT * FROM exception WHERE kind = '2') AS removed USING (service_id, day);

-- a day of the period that the timetable is not for counts as the average one of its day of the week
CREATE TABLE running AS
WITH wanted AS (
    SELECT CAST(unnest(generate_series(getvariable('first'), getvariable('last'), INTERVAL 1 DAY)) AS DATE) AS day
),
elsewhere AS (
    SELECT isodow(day) - 1 AS weekday, count(*) AS days FROM wanted ANTI JOIN feed_day USING (day) GROUP BY ALL
),
usual AS (SELECT isodow(day) - 1 AS weekday, count(*) AS days FROM feed_day GROUP BY ALL)
SELECT service_id, CAST(weekday AS INTEGER) AS weekday, CAST(sum(days) AS DOUBLE) AS days
FROM (
    SELECT service_id, isodow(day) - 1 AS weekday, count(*) AS days
    FROM active JOIN wanted USING (day) GROUP BY ALL
    UNION ALL
    SELECT service_id, weekday, count(*) * any_value(elsewhere.days) / any_value(usual.days) AS days
    FROM (SELECT service_id, isodow(day) - 1 AS weekday FROM active) AS all_days
    JOIN elsewhere USING (weekday) JOIN usual USING (weekday)
    GROUP BY ALL
) AS both_kinds
GROUP BY ALL;

CREATE TABLE stop AS
SELECT stop_id, CAST(row_number() OVER (ORDER BY stop_id) AS INTEGER) AS number, latitude, longitude
FROM (
    SELECT stop_id, any_value(TRY_CAST(trim(stop_lat) AS DOUBLE)) AS latitude,
        any_value(TRY_CAST(trim(stop_lon) AS DOUBLE)) AS longitude
    FROM written('stops.txt') GROUP BY stop_id
) AS each_once
WHERE abs(latitude) <= 90 AND abs(longitude) <= 180;

-- numbers are shorter than names: ten million of them are sorted below
CREATE TABLE trip AS
SELECT trip_id, service_id, CAST(row_number() OVER (ORDER BY trip_id) AS INTEGER) AS number
FROM (SELECT trip_id, any_value(service_id) AS service_id FROM written('trips.txt') GROUP BY trip_id) AS each_once
WHERE service_id IN (SELECT service_id FROM running);

CREATE TABLE timed AS
SELECT trip.number AS trip, stop.number AS stop, TRY_CAST(trim(stop_sequence) AS INTEGER) AS place,
    seconds_of(coalesce(arrival, departure)) AS arrives, seconds_of(coalesce(departure, arrival)) AS leaves
FROM (
    SELECT *, nullif(trim(arrival_time), '') AS arrival, nullif(trim(departure_time), '') AS departure
    FROM written('stop_times.txt')
) AS each_row
JOIN trip USING (trip_id)
JOIN stop USING (stop_id)
WHERE coalesce(arrival, departure) IS NOT NULL;

CREATE TABLE unread AS
SELECT count(*) FILTER (WHERE arrives IS NULL OR leaves IS NULL OR place IS NULL) AS stop_times,
    count(*) AS all_stop_times
FROM timed;

CREATE TABLE run AS
SELECT trip, origin, destination, leaves, arrives - leaves AS lasts
FROM (
    SELECT trip, stop AS destination, arrives, lag(stop) OVER way AS origin, lag(leaves) OVER way AS leaves
    FROM timed
    WINDOW way AS (PARTITION BY trip ORDER BY place)
) AS neighbours
WHERE origin <> destination AND arrives >= leaves;

-- a trip with frequencies runs every so often: its own times say how long it takes
CREATE TABLE often AS
SELECT trip.number AS trip, begins, unnest(range(starts, ends, every)) AS starts
FROM (
    SELECT trip_id, seconds_of(start_time) AS starts, seconds_of(end_time) AS ends,
        greatest(TRY_CAST(trim(headway_secs) AS INTEGER), 10) AS every
    FROM written('frequencies.txt')
) AS each_row
JOIN trip USING (trip_id)
JOIN (SELECT trip AS number, min(leaves) AS begins FROM timed GROUP BY trip) AS first_leaves USING (number)
WHERE starts IS NOT NULL AND ends IS NOT NULL AND every IS NOT NULL;

CREATE TABLE between_stops AS
SELECT origin, destination, weekday, CAST(leaves // 3600 % 24 AS INTEGER) AS hour,
    sum(days) AS runs, sum(lasts * days) AS seconds
FROM (
    SELECT trip, origin, destination, leaves, lasts FROM run WHERE trip NOT IN (SELECT trip FROM often)
    UNION ALL
    SELECT run.trip, origin, destination, leaves - begins + starts, lasts FROM run JOIN often USING (trip)
) AS every_run
JOIN trip ON trip = number
JOIN running USING (service_id)
GROUP BY ALL;

CREATE TABLE pair AS
SELECT origin, destination, a.latitude AS south, a.longitude AS west, b.latitude AS north,
    b.longitude AS east
FROM (SELECT DISTINCT origin, destination FROM between_stops) AS each_pair
JOIN stop AS a ON a.number = origin
JOIN stop AS b ON b.number = destination
ORDER BY origin, destination;
