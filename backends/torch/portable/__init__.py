"""Files that an emitted program takes along: nothing in them imports distir, so that the program runs where there is none."""
