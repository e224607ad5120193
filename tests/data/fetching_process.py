"""One process of several that load the tiny data set at once: FOLDER NUMBER-OF-PROCESSES."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from conftest import tiny_facts, tiny_files
from sfumato.data import images, load_images
from sfumato.data.image_sources import IMAGE_SOURCES, Source


def main(folder: Path, processes: int) -> None:
    def fetch(place: Path) -> Path:
        with (folder / "fetches").open("a") as file:
            file.write("fetched\n")
        time.sleep(0.3)  # long enough for the others to come along
        return place

    images._IMAGES["tiny"] = tiny_facts()
    IMAGE_SOURCES["tiny"] = (Source("here", fetch, lambda facts, place: tiny_files()),)
    (folder / f"ready-{time.monotonic_ns()}").touch()
    while len(list(folder.glob("ready-*"))) < processes:
        time.sleep(0.01)
    assert load_images("tiny").train.labels.tolist() == [0, 1, 2, 0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
