"""PyPI mcp, the official Python SDK, over streams: both eras.

The arguments are the place to play at, as JSON, and the mode: legacy, or a version to pin. It prints one line of JSON,
feature by feature, with an empty text for what went well. test/streams has the other side.
"""

import json
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated
from story import report

# What 2026-07-28 has removed is what the legacy era consists of.
warnings.simplefilter("ignore")

MESSAGE = "May we go on?"
URI = "test://watched-resource"
PLACE = json.loads(sys.argv[1])
MODE = sys.argv[2]
MODERN = MODE != "legacy"


async def elicited(context, params) -> types.ElicitResult:
    await anyio.sleep(PLACE["think"] / 1000)
    return types.ElicitResult(action="accept", content={"answer": "yes"})


async def sampled(context, params) -> types.CreateMessageResult:
    return types.CreateMessageResult(
        role="assistant", model="test", content=types.TextContent(type="text", text="Paris")
    )


async def listed(context) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(name="work", uri="file:///work")])


class Session:
    """A session, its stream of announcements, and what has been announced on it."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.opened = anyio.Event()
        self.updated = anyio.Event()

    async def note_stream(self, response: httpx2.Response) -> None:
        if response.request.method == "GET" and response.status_code == 200:
            if "last-event-id" not in response.request.headers:
                self.opened.set()

    async def note_update(self, message) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and str(message.params.uri) == URI:
            self.updated.set()

    async def text(self, name: str, arguments: dict, progress=None) -> str:
        result = await self.client.call_tool(name, arguments, progress_callback=progress)
        text = "".join(c.text for c in result.content)
        if result.is_error:
            raise RuntimeError(text)
        return text


@asynccontextmanager
async def connect(url: str):
    session = Session()
    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(timeout=timeout, event_hooks={"response": [session.note_stream]}) as http:
        async with Client(
            streamable_http_client(url, http_client=http),
            mode=MODE,
            read_timeout_seconds=90,
            elicitation_callback=elicited,
            sampling_callback=sampled,
            list_roots_callback=listed,
            message_handler=session.note_update,
        ) as client:
            session.client = client
            yield session


def expect(part: str, text: str) -> None:
    if part not in text:
        raise RuntimeError(f"{text!r} has no {part}")


async def elsewhere(url: str, name: str, arguments: dict) -> str:
    async with connect(url) as other:
        return await other.text(name, arguments)


async def elicit(session: Session) -> None:
    expect('"answer":"yes"', await session.text("ask", {"message": MESSAGE}))


async def rounds(session: Session) -> None:
    expect('"answer":"yes"', await session.text("ask_mrtr", {"message": MESSAGE}))


async def suspended(session: Session) -> None:
    expect('"answer":"yes"', await elsewhere(PLACE["suspended"], "ask_mrtr", {"message": MESSAGE}))


async def sampling(session: Session) -> None:
    if MODERN:
        expect("Paris", await session.text("test_input_required_result_sampling", {}))
    else:
        expect("Paris", await session.text("test_sampling", {"prompt": "The capital of France?"}))


async def roots(session: Session) -> None:
    expect("file:///work", await session.text("test_input_required_result_list_roots", {}))


async def progress(session: Session) -> None:
    steps: list[float] = []

    async def step(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    expect("done", await session.text("progress", {"n": 5, "ms": 50}, step))
    if steps != [1, 2, 3, 4, 5]:
        raise RuntimeError(f"heard of the steps {steps}")


async def cancel(session: Session) -> None:
    with anyio.move_on_after(1.5):
        text = await session.text("sleep", {"ms": 60_000, "key": PLACE["key"]})
        raise RuntimeError(f"a cancelled call gave {text!r}")


async def linger(session: Session) -> None:
    await cancel(session)
    await anyio.sleep(PLACE["think"] / 1000)


async def resume(session: Session) -> None:
    expect("slept 1500 ms", await elsewhere(PLACE["cut"], "sleep", {"ms": 1500, "key": PLACE["key"]}))


async def subscribe(session: Session) -> None:
    async with connect(PLACE["url"]) as watcher:
        with anyio.fail_after(20):
            if MODERN:
                async with watcher.client.listen(resource_subscriptions=[URI]) as events:
                    await elsewhere(PLACE["url"], "touch", {"uri": URI})
                    async for event in events:
                        if event == ResourceUpdated(uri=URI):
                            return
            await watcher.client.subscribe_resource(URI)
            await watcher.opened.wait()
            await elsewhere(PLACE["url"], "touch", {"uri": URI})
            await watcher.updated.wait()


PLAYS = {
    f.__name__: f
    for f in (elicit, rounds, suspended, sampling, roots, progress, cancel, linger, resume, subscribe)
}


async def main() -> None:
    seen: dict[str, str] = {}

    async def play(feature: str, session: Session) -> None:
        try:
            await PLAYS[feature](session)
            seen[feature] = ""
        except Exception as e:
            seen[feature] = f"{type(e).__name__}: {e}"

    async with connect(PLACE["url"]) as session:
        async with anyio.create_task_group() as all_features:
            for feature in PLACE["features"]:
                all_features.start_soon(play, feature, session)
    report(seen)


anyio.run(main)
