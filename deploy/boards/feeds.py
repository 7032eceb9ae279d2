"""Do the events arrive that the index is made of?"""

from deploy.record import PREFIX, Dashboard, Line, Panel, now, or_zero, shown

FEED = "{{worker}} rank {{rank}}"
FEEDS = Dashboard(
    uid="kv-gateway-feeds",
    title="kv-gateway: event feeds",
    meaning="Do the events arrive that the index is made of?",
    panels=(
        Panel(
            title="Feeds by state",
            meaning="By the gateway that sees most of them in it.",
            lines=(
                Line(
                    "max by (state) (sum without (worker, rank) "
                    f"({now('feed_state')}))",
                    "{{state}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Feeds that cannot be trusted, and why",
            meaning="All but the live ones.",
            lines=(
                Line(
                    or_zero(
                        "max by (worker, rank, reason) "
                        f"({now('feed_reason')} and ignoring (reason) "
                        f"({PREFIX}feed_complete == 0))"
                    ),
                    f"{FEED}: {{{{reason}}}}",
                ),
            ),
            kind="table",
            width=16,
        ),
        Panel(
            title="Events",
            meaning="Per second, by kind.",
            lines=(Line(shown("kv_events_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            title="Events by worker",
            meaning="Per second.",
            lines=(Line(shown("kv_events_total", "worker"), "{{worker}}"),),
            stacked=True,
        ),
        Panel(
            title="Batches missed, and replayed",
            meaning="Per second. Those a replay brings do no harm.",
            lines=(
                Line(shown("missed_batches_total", "worker"), "{{worker}} missed"),
                Line(shown("replayed_batches_total", "worker"), "{{worker}} replayed"),
            ),
        ),
        Panel(
            title="Events of no use",
            meaning="Per second, by why.",
            lines=(
                Line(
                    or_zero(shown("undecodable_events_total", "worker, reason")),
                    "{{worker}} undecodable: {{reason}}",
                ),
                Line(
                    or_zero(shown("rejected_events_total", "worker, reason")),
                    "{{worker}} rejected: {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Blocks held",
            meaning="By worker and medium, as the events tell.",
            lines=(
                Line(
                    f"max by (worker, rank, medium) ({now('held_blocks')})",
                    f"{FEED} {{{{medium}}}}",
                ),
            ),
        ),
        Panel(
            title="Blocks in doubt",
            meaning="Stored before events were missed, not confirmed since.",
            lines=(Line(f"max by (worker, rank) ({now('suspect_blocks')})", FEED),),
        ),
        Panel(
            title="Time in the present state",
            meaning="Of each feed. Many short ones are one that comes and goes.",
            lines=(
                Line(
                    "time() - max by (worker, rank) "
                    f"({now('feed_state_timestamp_seconds')})",
                    FEED,
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Batches that came again, or out of order",
            meaning="Per second. They do no harm; a publisher should not do it.",
            lines=(
                Line(shown("duplicate_batches_total", "worker"), "{{worker}} again"),
                Line(
                    shown("disordered_batches_total", "worker"),
                    "{{worker}} out of order",
                ),
            ),
        ),
        Panel(
            title="Orphans given up",
            meaning="Blocks per second whose parent never came: they are not indexed.",
            lines=(Line(shown("orphan_blocks_dropped_total", "worker"), "{{worker}}"),),
        ),
        Panel(
            title="Orphans, restarts, gaps",
            meaning="Per second: blocks before their parent, restarts of workers, "
            "times that batches were missed.",
            lines=(
                Line(shown("orphan_blocks_total", "worker"), "{{worker}} orphans"),
                Line(shown("worker_restarts_total", "worker"), "{{worker}} restarts"),
                Line(shown("event_gaps_total", "worker"), "{{worker}} gaps"),
            ),
        ),
    ),
)
