from guest.machine.folders import unfit_for_hooks


def test_a_folder_that_pythonpath_cannot_name_is_refused_in_one_text():
    assert unfit_for_hooks("/a/b") == ""
    why = "/a:b: a path with a colon cannot stand in PYTHONPATH, so start-up hooks would not run"
    assert unfit_for_hooks("/a:b") == f"{why}: use another folder"
    assert unfit_for_hooks("/a:b", "move it") == f"{why}: move it"
