"""Writes the Grafana dashboard: python3 deploy/dashboard.py > deploy/dashboard.json (needs grafana-foundation-sdk)."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

WHOSE = "{{program}} {{pid}}"
ONLY = 'program=~"$program"'
# Title, unit, and for each line its legend and its query; the first four are the contention panels of the papers.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Lock contention", "percentunit", [(WHOSE, f"rate(temporal_slab_class_lock_contended_total{{{ONLY}}}[5m]) / "
     f"clamp_min(rate(temporal_slab_class_lock_acquisitions_total{{{ONLY}}}[5m]), 0.0001)")]),
    ("CAS retries of malloc", "short", [(WHOSE, f"rate(temporal_slab_class_bitmap_alloc_cas_retries_total{{{ONLY}}}[5m]) / "
     f"clamp_min(rate(temporal_slab_class_bitmap_alloc_attempts_total{{{ONLY}}}[5m]), 0.0001)")]),
    ("CAS retries of free", "short", [(WHOSE, f"rate(temporal_slab_class_bitmap_free_cas_retries_total{{{ONLY}}}[5m]) / "
     f"clamp_min(rate(temporal_slab_class_bitmap_free_attempts_total{{{ONLY}}}[5m]), 0.0001)")]),
    ("Failed adoptions of slabs (no contention)", "percentunit", [(WHOSE,
     f"rate(temporal_slab_class_current_partial_cas_failures_total{{{ONLY}}}[5m]) / "
     f"clamp_min(rate(temporal_slab_class_current_partial_cas_attempts_total{{{ONLY}}}[5m]), 0.0001)")]),
    ("Memory", "bytes", [(f"{kind} {WHOSE}", f"temporal_slab_{name}_bytes{{{ONLY}}}")
     for kind, name in (("resident", "rss"), ("live", "live"), ("retained", "retained"))]),
    ("Epochs by state", "short", [("{{label}} {{state}} " + WHOSE, f"temporal_slab_epochs{{{ONLY}}}")]),
    ("Oldest epoch", "s", [("{{label}} {{state}} " + WHOSE, f"temporal_slab_epoch_age_seconds{{{ONLY}}}")]),
    ("p99 by path", "s", [("{{path}} " + WHOSE,
     f"histogram_quantile(0.99, rate(temporal_slab_path_seconds_bucket{{{ONLY}}}[5m]))")]),
    ("Given back by each epoch that ends", "bytes", [("{{label}} " + WHOSE,
     f"rate(temporal_slab_label_madvise_bytes_total{{{ONLY}}}[5m]) / "
     f"clamp_min(rate(temporal_slab_label_ended_total{{{ONLY}}}[5m]), 0.0001)")]),
    ("Time in slow paths", "percentunit", [("{{path}} " + WHOSE,
     f'rate(temporal_slab_path_seconds_sum{{{ONLY},path!="fast"}}[5m])')]),
]  # fmt: skip


def build() -> dashboard.Dashboard:
    source = DataSourceRef(type_val="prometheus", uid="$source")
    made = (
        dashboard.Dashboard("temporal-slab").uid("temporal-slab").refresh("5s").time("now-1h", "now")
        .tags(["temporal-slab"]).with_variable(dashboard.DatasourceVariable("source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("program").datasource(source).include_all(True).multi(True).all_value(".*")
            .query("label_values(temporal_slab_live_bytes, program)")
        )
    )  # fmt: skip
    for title, unit, lines in PANELS:
        panel = timeseries.Panel().title(title).unit(unit).min(0).datasource(source).height(8).span(12)
        for legend, query in lines:
            panel = panel.with_target(prometheus.Dataquery().expr(query).legend_format(legend).interval("15s"))
        made = made.with_panel(panel)
    return made


if __name__ == "__main__":
    print(JSONEncoder(sort_keys=True, indent=1).encode(build().build()))
