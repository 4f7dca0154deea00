"""One command a file. It decides little: it puts the rooms together and says what came out."""
