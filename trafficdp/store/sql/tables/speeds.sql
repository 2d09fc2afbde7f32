-- The speeds of cells and quantiles in one unit, under the names that they have in a release's files.
-- Written for km/h; run once for every unit that releases of the store are in, with its name for kmh.
-- The mean itself comes last: what is too narrow for all columns shows the first and the last.

ALTER TABLE kept_cells ADD COLUMN speed_vehicle_mean_kmh_noise_scale DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_vehicle_mean_kmh_expected_error DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_vehicle_mean_kmh_low DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_vehicle_mean_kmh_high DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_vehicle_mean_kmh DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_variance_kmh2_noise_scale DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_variance_kmh2_expected_error DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_variance_kmh2_low DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_variance_kmh2_high DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_variance_kmh2 DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_mean_kmh_noise_scale DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_mean_kmh_expected_error DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_mean_kmh_low DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_mean_kmh_high DOUBLE;
ALTER TABLE kept_cells ADD COLUMN speed_mean_kmh DOUBLE;
ALTER TABLE quantiles ADD COLUMN speed_kmh DOUBLE;
COMMENT ON COLUMN quantiles.speed_kmh IS 'The quantile of the vehicles'' own mean speeds, selected privately.';
