-- For wrk: sends each line of a file, which `dither uploads` wrote, once. sizes.md shows how.
local bodies

function init(args)
  bodies = io.lines(args[1])
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. io.open(args[2]):read()
end

function request()
  local body = bodies()
  if not body then -- wrk would go on counting seconds in which nothing is sent
    io.stderr:write("all uploads of the file are sent: write more of them\n")
    os.exit(1)
  end
  return wrk.format("POST", nil, nil, body)
end
