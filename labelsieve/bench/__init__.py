"""Speed measurements behind `labelsieve bench`."""
