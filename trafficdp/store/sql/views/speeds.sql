-- What the speeds of cells in one unit are. Written for km/h, as tables/speeds.sql is.

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
