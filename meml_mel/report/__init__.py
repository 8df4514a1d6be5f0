"""Pictures and tables from run directories; knows no trainer."""
