-- Gives every vehicle of incoming_vehicles that is new to the vault the next number, in order of its HMAC.
-- Grain: one row a new vehicle.
INSERT INTO vehicles (vehicle_id, hmac)
SELECT
    CAST((SELECT coalesce(max(vehicle_id), 0) FROM vehicles)
         + row_number() OVER (ORDER BY new_vehicles.vehicle) AS INTEGER),
    new_vehicles.vehicle
FROM (
    SELECT DISTINCT CAST(vehicle AS BLOB) AS vehicle
    FROM incoming_vehicles
) AS new_vehicles
ANTI JOIN vehicles ON vehicles.hmac = new_vehicles.vehicle;
