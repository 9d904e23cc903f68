"""What the published image does: KAFKA_NODE_ID is node.id; format the folder once, then run the broker."""

from __future__ import annotations

import os
import subprocess

settings = {
    key.removeprefix("KAFKA_").lower().replace("_", "."): value
    for key, value in os.environ.items()
    if key.startswith("KAFKA_") and key != "KAFKA_HEAP_OPTS"
}
with open("/tmp/kafka.properties", "w", encoding="utf-8") as file:  # noqa: PTH123, S108 - a container of its own
    file.writelines(f"{key}={value}\n" for key, value in settings.items())
java = ["java", *os.environ["KAFKA_HEAP_OPTS"].split(), "-cp", "/opt/kafka/lib/*"]
tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", os.environ["CLUSTER_ID"]]
subprocess.run([*java, *tool, "-c", "/tmp/kafka.properties"], check=True)  # noqa: S108
os.execvp("java", [*java, "kafka.Kafka", "/tmp/kafka.properties"])  # noqa: S606, S108
