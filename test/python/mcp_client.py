"""PyPI mcp, the official Python SDK: both eras."""

import json

import anyio
from mcp import Client
from story import ECHO_ARGUMENTS, arguments, report


async def main() -> None:
    url, mode = arguments()
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with Client(url, mode=mode, read_timeout_seconds=30) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        prompts = await client.list_prompts()
        stepped = await client.call_tool("progress", {"n": 3, "ms": 20}, progress_callback=on_progress)
        echo = await client.call_tool("echo", ECHO_ARGUMENTS)
        failing = await client.call_tool("test_error_handling")
        resource = await client.read_resource("test://static-text")
        templated = await client.read_resource("test://template/42/data")
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "first", "arg2": "zweites"})
        seen = {
            "server": client.server_info.name if client.server_info else None,
            "protocol": client.protocol_version,
            "tools": [t.name for t in tools.tools],
            "resources": [str(r.uri) for r in resources.resources],
            "prompts": [p.name for p in prompts.prompts],
            "echo": json.loads(echo.content[0].text),
            "structured": echo.structured_content,
            "failed": failing.is_error,
            "resource": resource.contents[0].text,
            "templated": templated.contents[0].text,
            "prompt": "\n".join(m.content.text for m in prompt.messages),
            "progress": len(progress),
            "stepped": stepped.content[0].text,
        }
    report(seen)


anyio.run(main)
