#!lua flags=no-writes
-- What is known of a job.
-- KEYS of the session   ARGV[1] lane, [2] job id
-- Returns its fields, none for an unknown or forgotten job or session, or a digest that is finished.
if not is_session_there() then return {} end
return view_of_job(ARGV[1], ARGV[2])
