"""Filter web pages and remove near-duplicates: `python filter_text.py CRAWL OUT`.

CRAWL is a folder of JSON lines with the keys `text` and `id`. OUT/text receives the remaining
documents, one sentence per line, and an empty line after each document. Run the script again to
resume.
"""

import sys
from typing import IO

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.pipeline.writers.disk_base import DiskWriter
from datatrove.utils.text import split_into_sentences

TASKS = 2  # processes
BUCKETS = 14  # the number in datatrove's default `MinhashConfig`


class SentenceWriter(DiskWriter):
    """Writes one sentence per line."""

    name = "Sentences"
    default_output_filename = "${rank}.txt"

    def _write(self, document: dict, file_handler: IO[str], _filename: str) -> None:
        for paragraph in document["text"].splitlines():
            for sentence in split_into_sentences(paragraph):
                print(sentence.strip(), file=file_handler)
        print(file=file_handler)


def main(crawl: str, out: str, workers: int = TASKS) -> None:
    """Filter, then remove near-duplicates."""

    def run(name: str, tasks: int, *steps: PipelineStep) -> None:
        LocalPipelineExecutor(
            list(steps), tasks=tasks, workers=workers, logging_dir=f"{out}/logs/{name}"
        ).run()

    filtered, near_duplicates = f"{out}/filtered", f"{out}/near_duplicates"
    rules = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter()]
    run("filter", TASKS, JsonlReader(crawl), *rules, JsonlWriter(filtered))
    run("sign", TASKS, JsonlReader(filtered), MinhashDedupSignature(f"{out}/signatures"))
    run("compare", BUCKETS, MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets"))
    run("cluster", 1, MinhashDedupCluster(f"{out}/buckets", near_duplicates))
    keep = MinhashDedupFilter(near_duplicates)
    run("write", TASKS, JsonlReader(filtered), keep, SentenceWriter(f"{out}/text"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
