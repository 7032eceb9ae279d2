"""vLLM before 0.17, whose events tell no salts."""

from tests.gateway.fed import SIZE, TURN, held, options, told
from tests.running import StartGateway, StartWorker, until


async def test_a_salted_block_looks_like_any_other(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The feed says so, and what is believed too much is right after one request."""
    worker = await start_worker(options(event_layout="0.14"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN, cache_salt="a")
    await until(lambda: held(gateway, worker) >= 8)
    feed = await gateway.feed()
    assert (feed["state"], feed["complete"]) == ("live", False)
    assert "tell no salts" in feed["reason"]
    assert await told(gateway, TURN) >= 8 * SIZE
    assert (await gateway.chat(TURN)).cached == 0
    answer = await gateway.chat(TURN)
    assert answer.cached == await told(gateway, TURN)
