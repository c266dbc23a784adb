"""Running a search: dividing it among workers, ending it early, and reporting its results."""
