"""HAP as published (Zhang et al., EuroSys 2024), for comparison: ``accounting`` has its costs."""
