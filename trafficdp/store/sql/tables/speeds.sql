-- The speeds of cells and quantiles in one unit, under the names that they have in a release's files.
-- Written for km/h; run once for every unit that releases of the store are in, with its name for kmh.
-- The mean itself comes last: what is too narrow for all columns shows the first and the last.

ALTER TABLE cells ADD COLUMN speed_vehicle_mean_kmh_noise_scale DOUBLE;
ALTER TABLE cells ADD COLUMN speed_vehicle_mean_kmh_expected_error DOUBLE;
ALTER TABLE cells ADD COLUMN speed_vehicle_mean_kmh_low DOUBLE;
ALTER TABLE cells ADD COLUMN speed_vehicle_mean_kmh_high DOUBLE;
ALTER TABLE cells ADD COLUMN speed_vehicle_mean_kmh DOUBLE;
ALTER TABLE cells ADD COLUMN speed_variance_kmh2_noise_scale DOUBLE;
ALTER TABLE cells ADD COLUMN speed_variance_kmh2_expected_error DOUBLE;
ALTER TABLE cells ADD COLUMN speed_variance_kmh2_low DOUBLE;
ALTER TABLE cells ADD COLUMN speed_variance_kmh2_high DOUBLE;
ALTER TABLE cells ADD COLUMN speed_variance_kmh2 DOUBLE;
ALTER TABLE cells ADD COLUMN speed_mean_kmh_noise_scale DOUBLE;
ALTER TABLE cells ADD COLUMN speed_mean_kmh_expected_error DOUBLE;
ALTER TABLE cells ADD COLUMN speed_mean_kmh_low DOUBLE;
ALTER TABLE cells ADD COLUMN speed_mean_kmh_high DOUBLE;
ALTER TABLE cells ADD COLUMN speed_mean_kmh DOUBLE;
ALTER TABLE quantiles ADD COLUMN speed_kmh DOUBLE;
COMMENT ON COLUMN quantiles.speed_kmh IS 'The quantile of the vehicles'' own mean speeds, selected privately.';
COMMENT ON COLUMN cells.speed_vehicle_mean_kmh_noise_scale IS 'Average size of its noise (Laplace noise: its scale).';
COMMENT ON COLUMN cells.speed_vehicle_mean_kmh_expected_error IS 'Expected absolute error, worst case over the truth.';
COMMENT ON COLUMN cells.speed_vehicle_mean_kmh_low IS 'Lower end of its interval.';
COMMENT ON COLUMN cells.speed_vehicle_mean_kmh_high IS 'Upper end of its interval.';
COMMENT ON COLUMN cells.speed_vehicle_mean_kmh IS 'Mean over vehicles of each vehicle''s own mean speed, noisy; null when withheld or not released.';
COMMENT ON COLUMN cells.speed_variance_kmh2_noise_scale IS 'Average size of its noise (Laplace noise: its scale).';
COMMENT ON COLUMN cells.speed_variance_kmh2_expected_error IS 'Expected absolute error, worst case over the truth.';
COMMENT ON COLUMN cells.speed_variance_kmh2_low IS 'Lower end of its interval.';
COMMENT ON COLUMN cells.speed_variance_kmh2_high IS 'Upper end of its interval.';
COMMENT ON COLUMN cells.speed_variance_kmh2 IS 'Population variance of speed over records, noisy; null when withheld or not released.';
COMMENT ON COLUMN cells.speed_mean_kmh_noise_scale IS 'Average size of its noise (Laplace noise: its scale).';
COMMENT ON COLUMN cells.speed_mean_kmh_expected_error IS 'Expected absolute error, worst case over the truth.';
COMMENT ON COLUMN cells.speed_mean_kmh_low IS 'Lower end of its interval.';
COMMENT ON COLUMN cells.speed_mean_kmh_high IS 'Upper end of its interval.';
COMMENT ON COLUMN cells.speed_mean_kmh IS 'Mean speed over records, noisy; null when withheld or not released.';
