"""D-Rec, the production search by SMSG's authors, for comparison: ``accounting`` has its costs."""
