#!/usr/bin/env python3
"""MLflow, at MLFLOW_TRACKING_URI (a server, or sqlite:///mlflow.db):

  logging.command: python3 recipes/watchers/mlflow_watcher.py EXPERIMENT
"""
import json
import os
import sys

import mlflow

run = None
for event in map(json.loads, sys.stdin):
    if event["event"] == "start" and run is None:
        place = os.path.abspath(event["folder"])
        experiment = mlflow.set_experiment(sys.argv[1]).experiment_id
        earlier = mlflow.search_runs([experiment], f"tags.folder = '{place}'", output_format="list")
        run = mlflow.start_run(earlier[0].info.run_id if earlier else None, run_name=os.path.basename(place),
                               tags={"folder": place, "version": event["version"]})
        mlflow.log_text(event["recipe"], "recipe.json")
    elif event["event"] in ("step", "validation"):
        name = f"{event['name']}/" if "name" in event else ""
        mlflow.log_metrics({name + key: float(value) for key, value in event.items()
                            if isinstance(value, (int, float)) and key != "step"}, step=event["step"])
    elif event["event"] == "end":
        mlflow.end_run("FINISHED" if event["exit_code"] in (0, 10) else "FAILED")  # 10: stopped, resumable
