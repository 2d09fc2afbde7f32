-- Finds published releases by the index; what is null is not asked for.
-- Grain: one row a release that is not withdrawn, the newest first.
SELECT release_id
FROM releases JOIN release_index USING (release_id)
WHERE published AND NOT withdrawn
    AND data_version = coalesce($data_version, data_version)
    AND data_version IS DISTINCT FROM $not_of_data
    AND numbers_sha256 = coalesce($numbers_sha256, numbers_sha256)
    AND area_sha256 = coalesce($area_sha256, area_sha256)
    AND of_question = coalesce($of_question, of_question)
    AND of_everything = coalesce($of_everything, of_everything)
ORDER BY sequence DESC;
