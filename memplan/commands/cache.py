"""`memplan cache`: what is kept between runs, and forgetting it."""

from __future__ import annotations

from dataclasses import asdict

import click

from memplan.commands.options import GET_JSON
from memplan.planner.plan_cache import CacheContent, cache_content, clear_cache, is_on
from memplan.results import print_json
from memplan.units import format_bytes


@click.group(short_help="Show or clear what is kept between runs.")
def cache() -> None:
    """Show or clear the plans and measured costs that are kept between runs.

    They lie in the user's cache folder, or in $MEMPLAN_CACHE_DIR. MEMPLAN_PLAN_CACHE=off keeps no
    plans and uses none.
    """


@cache.command(epilog="Example: memplan cache info")
@GET_JSON
def info(as_json: bool) -> None:
    """Show how much is kept, and where."""
    content = cache_content()
    if as_json:
        print_json(_result(content) | {"plans_kept": is_on()})
        return
    click.echo(f"folder  {content.folder}")
    click.echo(f"plans   {content.plans:,} ({format_bytes(content.plan_bytes)})")
    click.echo(f"costs   {content.cost_files:,} files ({format_bytes(content.cost_bytes)})")
    if not is_on():
        click.echo("MEMPLAN_PLAN_CACHE is off: no plan is kept or used")


@cache.command(epilog="Example: memplan cache clear")
@GET_JSON
def clear(as_json: bool) -> None:
    """Delete all plans and measured costs; they are made again when needed."""
    content = clear_cache()
    if as_json:
        print_json(_result(content))
        return
    freed = format_bytes(content.plan_bytes + content.cost_bytes)
    click.echo(f"deleted {content.plans:,} plans and {content.cost_files:,} cost files ({freed})")


def _result(content: CacheContent) -> dict[str, object]:
    return asdict(content) | {"folder": str(content.folder)}
