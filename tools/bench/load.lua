-- For wrk: sends one request again and again and prints, as JSON lines behind wrk's own report, the rate, the errors and
-- the latency percentiles 0.1, 0.2, … 99.9, 99.99 in microseconds. Settings come from the environment: LOAD_METHOD,
-- LOAD_AUTHORIZATION, LOAD_BODY.
local method = os.getenv("LOAD_METHOD") or "GET"
local authorization = os.getenv("LOAD_AUTHORIZATION")
local body = os.getenv("LOAD_BODY")
local headers = {}
if authorization then headers["Authorization"] = authorization end
if body then headers["Content-Type"] = "application/json" end
local text

function init()
  text = wrk.format(method, nil, headers, body)
end

function request()
  return text
end

function done(summary, latency)
  local points = {}
  for i = 1, 999 do points[#points + 1] = string.format("[%.1f,%d]", i / 10, latency:percentile(i / 10)) end
  points[#points + 1] = string.format("[99.99,%d]", latency:percentile(99.99))
  local e = summary.errors
  io.write(string.format('JSON {"requests":%d,"seconds":%.6f,"errors":%d,"latency":[%s]}\n', summary.requests,
    summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout, table.concat(points, ",")))
end
