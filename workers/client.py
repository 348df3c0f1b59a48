"""What callers use: open sessions, send turns, follow them; from threads, or from asyncio.

sessions = Sessions.connect("redis://localhost:6379/0", agents="my_agents")
session = sessions.open("customer-42", agent="support")
print(session.send("Where is my parcel?").text)

async with AsyncSessions.connect("redis://localhost:6379/0", agents="my_agents") as sessions:
    session = await sessions.open("customer-42", agent="support")
    print((await session.send("Where is my parcel?")).text)
"""

from workers.aio import AsyncSession, AsyncSessions, AsyncTurn
from workers.blocking import ClientSession, Connection, Sessions, Turn
from workers.own_loop import OwnTurn

__all__ = [
    "AsyncSession",
    "AsyncSessions",
    "AsyncTurn",
    "ClientSession",
    "Connection",
    "OwnTurn",
    "Sessions",
    "Turn",
]
