-- wrk -s post.lua URL -- BODY TYPE [LENGTH]: sends the file BODY, whose JSON ends at LENGTH if bytes follow it, and ends
-- with a line of JSON.
init = function(arguments)
    local file = assert(io.open(arguments[1], "rb"))
    wrk.method, wrk.body = "POST", file:read("*a")
    file:close()
    wrk.headers["Content-Type"] = arguments[2]
    if arguments[3] then wrk.headers["Inference-Header-Content-Length"] = arguments[3] end
    made = wrk.format()
end

request = function() return made end

done = function(summary, latency)
    local errors = summary.errors
    local failures = errors.status + errors.connect + errors.read + errors.write + errors.timeout
    io.write(string.format('{"answers":%d,"seconds":%.6f,"p50_ms":%.4f,"p99_ms":%.4f,"failures":%d}\n', summary.requests,
        summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000, failures))
end
